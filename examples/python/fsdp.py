"""FSDP2 on two processes, and an engine in a third one. Each rank sends its shards; no tensor is gathered.

    torchrun --nproc-per-node 2 examples/python/fsdp.py     learns y = 3x + 1
"""

import multiprocessing
import tempfile

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

import bascule


def engine(endpoint):
    model = torch.nn.Linear(1, 1)
    with bascule.Receiver(endpoint, worker="engine", targets=model) as receiver, torch.inference_mode():
        for version in range(1, 101):
            receiver.take(version, timeout=60)
            receiver.finish()
        print(f"the engine has version {version}: f(2) = {model(torch.tensor([[2.0]])).item():.2f}", flush=True)


def main():
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    endpoint = [f"shm://{tempfile.mkdtemp()}/endpoint"]
    distributed.broadcast_object_list(endpoint)  # rank 0's
    served = multiprocessing.get_context("spawn").Process(target=engine, args=endpoint)
    if rank == 0:
        served.start()

    torch.manual_seed(rank)  # each rank has its own data
    model = fully_shard(torch.nn.Linear(1, 1), mesh=distributed.init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with bascule.Sender(endpoint[0], sharded=True) as sender:
        sender.register_model(model)
        if rank == 0:
            sender.wait_for_workers(1)
        for step in range(1, 101):
            x = torch.randn(64, 1)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), 3 * x + 1).backward()
            optimizer.step()
            report = sender.send(step=step)  # the same report on all ranks
            assert report.complete, report.workers
        if rank == 0:
            served.join()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
