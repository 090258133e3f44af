"""A training loop in PyTorch, and two engine processes that serve each version of its model.

    python examples/python/train.py     learns y = 3x + 1; both engines answer with what was learnt so far
"""

import multiprocessing
import tempfile
import time

import torch

import bascule


def engine(name, endpoint, stop, versions):
    model = torch.nn.Linear(1, 1)
    with bascule.Receiver(endpoint, worker=name, targets=model) as receiver, torch.inference_mode():
        while not stop.is_set():
            flip = receiver.commit()  # between two tokens, never within one
            if flip.changed and flip.version % 100 == 0:
                versions.put((flip.version, name, model(torch.tensor([[2.0]])).item()))
            time.sleep(0.001)  # here the engine would make a token


def main():
    spawn = multiprocessing.get_context("spawn")
    endpoint = f"shm://{tempfile.mkdtemp()}/endpoint"
    stop, versions = spawn.Event(), spawn.Queue()
    engines = [spawn.Process(target=engine, args=(f"engine-{i}", endpoint, stop, versions)) for i in range(2)]
    for process in engines:
        process.start()

    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(2)
        for step in range(1, 301):
            x = torch.randn(64, 1)
            loss = torch.nn.functional.mse_loss(model(x), 3 * x + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report = sender.send()  # returns once both engines serve this step's weights
            assert report.complete, report.workers
        for version, name, answer in sorted(versions.get() for _ in range(6)):
            print(f"version {version}: {name} says f(2) = {answer:.3f}")
        stop.set()
        for process in engines:
            process.join()


if __name__ == "__main__":
    main()
