"""Compares the Python package with the C++ API that it wraps, alternating both in one run.

    python bench/python_package.py [cuda]     needs torch and bascule, as scripts/test-python --torch installs them

An engine process follows over shm, or on a GPU over cuda-ipc. Each round sends once as a user does (Sender.send: Python
looks where each tensor lies, C++ packs, the engine flips) and once with the C++ call alone, as a C++ trainer does.
"""

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 15


def seconds(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def engine(endpoint, device, ready, stop):
    import bascule

    receiver = bascule.Receiver(endpoint, worker="engine", device=device)
    ready.set()
    while not stop.is_set():
        receiver.commit()
        time.sleep(0.0005)


def measure(tensors, shape, device):
    import torch

    import bascule

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ParameterList([torch.randn(shape, device=device) for _ in range(tensors)])

    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"{'shm' if device == 'cpu' else 'cuda-ipc'}://{folder}/endpoint"
        ready, stop = spawn.Event(), spawn.Event()
        process = spawn.Process(target=engine, args=(endpoint, device, ready, stop))
        process.start()
        with bascule.Sender(endpoint) as sender:
            sender.register_model(Model())
            ready.wait()
            sender.wait_for_workers(1)
            for _ in range(3):  # the first sends make the slots
                sender.send()
            whole, core, part = [], [], []
            for _ in range(ROUNDS):
                whole.append(seconds(sender.send))
                core.append(seconds(lambda: sender._core.send(None, [])))
                part.append(seconds(lambda: sender._prepare(None)))
            stop.set()
            process.join()
    return map(statistics.median, (whole, core, part))


def measure_weights(tensors):
    import torch

    import bascule

    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"shm://{folder}/endpoint"
        with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
            sender.register_model({f"t{i}": torch.randn(16) for i in range(tensors)})
            sender.wait_for_workers(1)
            sender.send_async()
            receiver.take()
            receiver.finish()
            sender.wait_async()
            return seconds(receiver.weights), seconds(receiver.weights)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    print("| what | measured | target |\n| --- | --- | --- |")
    for tensors, shape, most, most_part in ((338, (1024, 776), 1.03, 0.2), (10_000, (128, 128), 1.15, 4)):
        whole, core, part = measure(tensors, shape, device)
        print(f"| `Sender.send` on {device}, {tensors:,} tensors, {tensors * shape[0] * shape[1] * 4 / 2**30:.2f} GiB, over the C++ call: "
              f"{1e3 * whole:.2f} over {1e3 * core:.2f} ms | {whole / core:.3f} | {most} |")
        print(f"| Python's part of it, if nothing moved | {1e3 * part:.3f} ms | {most_part} ms |", flush=True)
    first, second = measure_weights(20_000)
    print(f"| `weights()` of 20,000 tensors, second call (first {1e3 * first:.0f} ms) | {1e3 * second:.3f} ms | 1 ms |")
    program = "import time; begun = time.perf_counter(); import bascule; print(time.perf_counter() - begun)"
    imports = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(ROUNDS)]
    print(f"| `import bascule`, without torch | {1e3 * statistics.median(imports):.0f} ms | 100 ms |")


if __name__ == "__main__":
    main()
