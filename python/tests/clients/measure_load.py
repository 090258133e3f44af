"""The time in which vLLM takes a version from Bascule, relative to loading the same tensors from its own memory.

    python python/tests/clients/measure_load.py [rounds]    # a model of 0.5 GB on the CPU; medians, and their ratios
    python python/tests/clients/measure_load.py [rounds] plain    # with torch's linear layers, where scatter works
    python python/tests/clients/measure_load.py [rounds] cuda     # 1 GB of bfloat16 on a GPU, by cuda-ipc
"""

import os
import statistics
import sys
import tempfile
import time

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
ranks = {}  # by how versions get into the model


def own_load(worker, tensors):
    """Loads like vLLM's own backends once the tensors have come."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    model = worker.model_runner.get_model()
    with set_current_vllm_config(worker.vllm_config):
        initialize_layerwise_reload(model)
        model.load_weights(iter(tensors))
        finalize_layerwise_reload(model, worker.model_runner.model_config)


def join(worker, way, endpoint):
    from bascule.vllm.engine import BasculeInitInfo

    engine = worker.weight_transfer_engine
    engine.rank = None
    engine.init_transfer_engine(BasculeInitInfo(endpoint, apply=way))
    ranks[way] = engine.rank
    return engine.rank.scatter is not None


def use(worker, way):
    worker.weight_transfer_engine.rank = ranks[way]


def seconds_of(work):
    """Waits until the GPU has finished."""
    import torch

    settle = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    settle()
    begin = time.perf_counter()
    work()
    settle()
    return time.perf_counter() - begin


def updated(llm, sender):
    """Seconds from start_weight_update to finish_weight_update for a version that is ready."""
    def update():
        llm.start_weight_update()
        llm.update_weights({"update_info": {}})
        llm.finish_weight_update()

    sender.send_async()
    time.sleep(1)
    seconds = seconds_of(update)
    assert sender.wait_async().complete
    return seconds


def main():
    import tiny
    import torch
    from vllm import LLM

    import bascule

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    plain, cuda = sys.argv[2:] == ["plain"], sys.argv[2:] == ["cuda"]
    with tempfile.TemporaryDirectory() as folder:
        scale = 2 if cuda else 1
        model = tiny.save(folder, hidden_size=1024 * scale, intermediate_size=4096 * scale, num_hidden_layers=8,
                          num_attention_heads=16, num_key_value_heads=4)
        llm = LLM(folder, weight_transfer_config={"backend": "bascule"}, enforce_eager=True, max_model_len=64,
                  dtype="bfloat16" if cuda else "float32", max_num_seqs=4, kv_cache_memory_bytes=1 << 26,
                  **({"worker_extension_cls": "plain_linears.Extension"} if plain else {}),
                  **({"gpu_memory_utilization": 0.05} if cuda else {}))
        if cuda:
            model.to("cuda", torch.bfloat16)
        tensors = [(name, each.detach().clone()) for name, each in model.named_parameters()]
        ways = ["load", "scatter"] if plain or cuda else ["load"]
        senders, took = {}, {"own": [], **{way: [] for way in ways}}
        for way in ways:
            endpoint = f"{'cuda-ipc' if cuda else 'shm'}://{folder}/{way}"
            assert llm.collective_rpc(join, args=(way, endpoint)) == [way == "scatter"]
            senders[way] = bascule.Sender(endpoint)
            senders[way].register_model(dict(tensors))
            senders[way].wait_for_workers(1)
        for _ in range(rounds):
            time.sleep(1)  # like below
            took["own"].append(seconds_of(lambda: llm.collective_rpc(own_load, args=(tensors,))))
            for way in ways:
                llm.collective_rpc(use, args=(way,))
                took[way].append(updated(llm, senders[way]))
        for sender in senders.values():
            sender.close()
        own = statistics.median(took["own"])
        print(f"{sum(each.nbytes for _, each in tensors) / 1e9:.3f} GB, {len(tensors)} tensors, medians of {rounds}: "
              f"vLLM's own load {1e3 * own:.3g} ms"
              + "".join(f"; by Bascule, {way}: {1e3 * statistics.median(took[way]):.3g} ms, ratio "
                        f"{statistics.median(took[way]) / own:.3f}" for way in ways))


if __name__ == "__main__":
    main()
