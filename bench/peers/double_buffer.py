"""TorchRL's double buffer and Bascule from Python, in turns: from the trainer's call until the same bytes lie in the
engine's own tensors, in another process.

    python bench/peers/double_buffer.py [MiB]        with bascule, torch, torchrl 0.14 and tensordict installed

Both engines copy into the same parameters; neither runs a loader. The double buffer has no word that a version is
there, so its engine is told by a queue, at once.
"""

import multiprocessing
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

    model = Model(mib, seed=1)
    transport = scheme_of(folder).create_transport()
    places = dict(model.named_parameters())
    with bascule.Receiver(f"shm://{folder}/endpoint", worker="engine", targets=model) as receiver, torch.no_grad():
        answers.put("ready")
        while (question := questions.get()) is not None:
            if question == "double buffer":
                for name, tensor in transport.receive_weights().items():
                    places[name].copy_(tensor)
            elif question == "bascule":
                while not receiver.commit().changed:
                    pass
            answers.put([float(tensor[7]) for tensor in places.values()] if question == "look" else "done")


def main():
    import bascule

    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    spawn = multiprocessing.get_context("spawn")
    questions, answers = spawn.Queue(), spawn.Queue()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # the double buffer's files lie in memory, too
        process = spawn.Process(target=engine, args=(folder, mib, questions, answers))
        process.start()
        model = Model(mib, seed=0)
        theirs = scheme_of(folder).create_sender()
        theirs.register_model(model)
        seconds = {"double buffer": [], "bascule": []}
        with bascule.Sender(f"shm://{folder}/endpoint") as ours:
            ours.register_model(model)
            answers.get()
            ours.wait_for_workers(1)
            for turn in range(ROUNDS + 1):
                for way, times in seconds.items():
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter.add_(1)
                    begun = time.perf_counter()
                    if way == "bascule":
                        questions.put(way)
                        assert ours.send().complete
                    else:
                        theirs.update_weights()
                        questions.put(way)
                    assert answers.get() == "done"
                    times.append(time.perf_counter() - begun)
                    questions.put("look")
                    assert answers.get() == [float(tensor[7]) for tensor in model.parameters()], way
            questions.put(None)
            process.join()
    for way, times in seconds.items():
        print(f"{way}: {1e3 * statistics.median(times[1:]):.0f} ms ({1e3 * min(times[1:]):.0f} to {1e3 * max(times[1:]):.0f})")
    medians = [statistics.median(times[1:]) for times in seconds.values()]
    print(f"{mib} MiB in {TENSORS} tensors: bascule is {medians[0] / medians[1]:.1f} times as fast")


if __name__ == "__main__":
    main()
