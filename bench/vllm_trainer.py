"""Measures vLLM's trainer API with the backend "bascule" beside Sender.stream() of the same tensors, alternating both.

    python bench/vllm_trainer.py [MIB]     needs bascule and vLLM, as scripts/test-python --clients installs them

The model has MIB mebibytes (default 256) of random float32 weights in 64 equal tensors. Each way has its own sender over shm
and its own worker in another process, which follows its sender; the client's verbs, which would go to a server of vLLM, do
nothing. A round lasts until the worker has the version.
"""

import multiprocessing
import statistics
import sys
import tempfile
import time

ROUNDS, FIRST, TENSORS = 31, 4, 64


def serve(endpoints):
    import bascule

    receivers = [bascule.Receiver(each, worker="engine") for each in endpoints]
    while True:
        for receiver in receivers:
            receiver.commit()
        time.sleep(0.0001)


class FollowingEngine:
    def init_weight_transfer_engine(self, init_info): ...

    def start_weight_update(self): ...

    def update_weights(self, update_info): ...

    def finish_weight_update(self, weight_version=None): ...


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    import torch
    from vllm.distributed.weight_transfer.base import ModuleSource

    import bascule
    from bascule.vllm.trainer import BasculeTrainerEngine, BasculeTrainerInitInfo

    model = torch.nn.ParameterDict({f"w{i}": torch.randn(mib * 2**18 // TENSORS) for i in range(TENSORS)})
    named = dict(model.named_parameters())
    with tempfile.TemporaryDirectory() as folder:
        endpoints = [f"shm://{folder}/{each}" for each in ("stream", "vllm")]
        worker = multiprocessing.get_context("spawn").Process(target=serve, args=(endpoints,), daemon=True)
        worker.start()
        sender = bascule.Sender(endpoints[0])
        sender.register_model([bascule.TensorSpec(name, each.dtype, each.shape) for name, each in named.items()])
        sender.wait_for_workers(1)
        engine = BasculeTrainerEngine.trainer_init(BasculeTrainerInitInfo(endpoint=endpoints[1], rank=0),
                                                   client=FollowingEngine(), source=ModuleSource(model))
        ways = {"Sender.stream()": lambda: sender.stream(named.items()), "send_weights()": engine.send_weights}
        seconds = {way: [] for way in ways}
        for round_ in range(FIRST + ROUNDS):
            for way, send in ways.items():
                begun = time.perf_counter()
                send()
                if round_ >= FIRST:
                    seconds[way].append(time.perf_counter() - begun)
        engine.shutdown()
        sender.close()
        worker.kill()
    print(f"{mib} MiB in {TENSORS} tensors, medians of {ROUNDS} alternating rounds")
    for way in ways:
        print(f"{way:16} {1e3 * statistics.median(seconds[way]):7.1f} ms, lowest {1e3 * min(seconds[way]):.1f} ms")
    print(f"ratio of the medians {statistics.median(seconds['send_weights()']) / statistics.median(seconds['Sender.stream()']):.3f}")


if __name__ == "__main__":
    main()
