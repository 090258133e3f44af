"""Alternates TorchRL's double buffer and Bascule from Python, and times each from the trainer's call until the same
bytes are in the engine's own tensors, in another process.

    python bench/alternatives/double_buffer.py [MiB]        with bascule, torch, torchrl 0.14 and tensordict installed

All copy into the same parameters; none runs a loader. The double buffer does not notify its engine of a version, so
here a queue does that at once. Bascule runs twice: with the double buffer's API (SyncScheme: torch copies out of the
slot), and as a receiver with targets (Bascule copies, and verifies the copy).
"""

import multiprocessing
import select
import statistics
import sys
import tempfile
import time

import torch

ROUNDS = 10
TENSORS = 338


class Model(torch.nn.Module):
    def __init__(self, mib, seed):
        super().__init__()
        torch.manual_seed(seed)
        size = (mib << 20) // TENSORS // 2
        self.layers = torch.nn.ParameterList([torch.randn(size).bfloat16() for _ in range(TENSORS)])


def scheme_of(folder):
    from torchrl.weight_update.llm.vllm_double_buffer import VLLMDoubleBufferSyncScheme

    return VLLMDoubleBufferSyncScheme(remote_addr=f"{folder}/buffer", num_threads=2, strategy="state_dict")


def engine(folder, mib, questions, answers):
    import bascule
    from bascule.torchrl import SyncScheme

    model = Model(mib, seed=1)
    transport = scheme_of(folder).create_transport()
    places = dict(model.named_parameters())
    named = SyncScheme(f"shm://{folder}/names").create_receiver(model, worker="engine")
    with bascule.Receiver(f"shm://{folder}/targets", worker="engine", targets=model) as receiver, torch.no_grad():
        ready = select.poll()
        ready.register(receiver.fileno(), select.POLLIN)
        answers.put("ready")
        while (question := questions.get()) is not None:
            if question == "double buffer":
                for name, tensor in transport.receive_weights().items():
                    places[name].copy_(tensor)
            elif question == "SyncScheme":
                assert named.poll_and_apply()
            elif question == "targets":
                while not receiver.commit().changed:
                    ready.poll()
            answers.put([float(tensor[7]) for tensor in places.values()] if question == "look" else "done")
    named.close()


def main():
    import bascule

    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    spawn = multiprocessing.get_context("spawn")
    questions, answers = spawn.Queue(), spawn.Queue()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # the double buffer's files are also in memory
        process = spawn.Process(target=engine, args=(folder, mib, questions, answers))
        process.start()
        model = Model(mib, seed=0)
        theirs = scheme_of(folder).create_sender()
        theirs.register_model(model)
        seconds = {"double buffer": [], "SyncScheme": [], "targets": []}
        stages = {"SyncScheme": [], "targets": []}
        with bascule.Sender(f"shm://{folder}/names") as names, bascule.Sender(f"shm://{folder}/targets") as targets:
            senders = {"SyncScheme": names, "targets": targets}
            for sender in senders.values():
                sender.register_model(model)
            assert answers.get() == "ready"
            for sender in senders.values():
                sender.wait_for_workers(1)
            for _ in range(ROUNDS + 1):
                for way, times in seconds.items():
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter.add_(1)
                    begun = time.perf_counter()
                    if way in senders:
                        questions.put(way)
                        report = senders[way].send()
                        assert report.complete
                        stages[way].append(report.seconds)
                    else:
                        theirs.update_weights()
                        questions.put(way)
                    assert answers.get() == "done"
                    times.append(time.perf_counter() - begun)
                    questions.put("look")
                    assert answers.get() == [float(tensor[7]) for tensor in model.parameters()], way
            questions.put(None)
            process.join()
    print(f"{mib} MiB in {TENSORS} tensors, median (least to most) of {ROUNDS} turns:")
    for way, times in seconds.items():
        print(f"{way}: {median(times):.0f} ms ({1e3 * min(times[1:]):.0f} to {1e3 * max(times[1:]):.0f}), "
              f"{median(seconds['double buffer']) / median(times):.1f} times as fast as the double buffer")
        if way in stages:
            print("    " + ", ".join(f"{stage} {median([getattr(each, stage) for each in stages[way]]):.1f}"
                                     for stage in ("wait", "pack", "prepare", "commit")) + " ms")


def median(times):
    """The median in milliseconds, without the first turn, which makes the memory."""
    return 1e3 * statistics.median(times[1:])


if __name__ == "__main__":
    main()
