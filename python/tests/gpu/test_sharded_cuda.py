"""FSDP2 on GPUs: two ranks send their shards without a gather, each from its own GPU if there are two."""

import multiprocessing

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bascule

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
PATIENCE = 120
STEPS = 4
RANKS = 2
spawn = multiprocessing.get_context("spawn")


class Net(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.up = torch.nn.Linear(301, 777, device=device)  # 389 and 388 rows
        self.low = torch.nn.Linear(777, 64, dtype=torch.bfloat16, device=device)
        self.one = torch.nn.Parameter(torch.zeros(1, 5, device=device))  # the second rank has none of it


@torch.no_grad()
def fill(model, step):
    """The same elements whether the parameters are sharded or not."""
    for i, (_, parameter) in enumerate(sorted(model.named_parameters())):
        shape = parameter.shape
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + i)).to(parameter.dtype)
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if local is parameter:
            local.copy_(whole)
        else:
            rank, chunk = distributed.get_rank(), -(-shape[0] // RANKS)
            local.copy_(whole[chunk * rank:chunk * rank + len(local)])


def _train(rank, folder, endpoint, steps, failed):
    try:
        device = rank % torch.cuda.device_count()
        torch.cuda.set_device(device)
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
        model = Net("cuda")
        fully_shard(model, mesh=init_device_mesh("cuda", (RANKS,)))
        with bascule.Sender(endpoint, sharded=True) as sender:
            sender.register_model(model)
            if rank == 0:
                sender.wait_for_workers(2, PATIENCE)
            for step in range(1, STEPS + 1):
                fill(model, step)
                report = sender.send(step=step)
                assert report.complete, report
                steps.wait(PATIENCE)
    except BaseException as error:
        failed.put(f"rank {rank}: {error!r}")
        raise


def test_shards_travel_from_each_rank_to_engines(tmp_path):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    steps, failed = spawn.Barrier(RANKS + 1), spawn.Queue()
    ranks = [spawn.Process(target=_train, args=(rank, tmp_path, endpoint, steps, failed)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    copies = Net(f"cuda:{torch.cuda.device_count() - 1}")
    try:
        with bascule.Receiver(endpoint, worker="in place", device="cuda:0") as reads, \
                bascule.Receiver(endpoint, worker="copies", device=f"cuda:{torch.cuda.device_count() - 1}",
                                 targets=copies) as writes:
            expected = Net("cpu")
            for step in range(1, STEPS + 1):
                for engine in (reads, writes):
                    while engine.take(timeout=1) is None:
                        assert failed.empty(), failed.get()
                fill(expected, step)
                state = expected.state_dict()
                for got in (reads.weights(), copies.state_dict()):
                    assert got.keys() == state.keys()
                    for name, tensor in got.items():
                        assert torch.equal(tensor.cpu(), state[name]), (step, name)
                for engine in (reads, writes):
                    engine.finish()
                steps.wait(PATIENCE)
    finally:
        for each in ranks:
            each.join(PATIENCE)
            each.kill()
