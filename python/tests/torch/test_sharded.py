"""Sharded models: each rank sends its part, and engines get the whole tensors, as full_tensor() gives them."""

import itertools
import multiprocessing
import os
import re
import signal

import pytest
import torch
from torch import distributed
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard

import bascule
from bascule import sharded, status

PATIENCE = 120
STEPS = 4
CAST = {"fsdp_mixed"}  # models that are sent as bfloat16


class Net(torch.nn.Module):
    """Rows that 2, 3 and 4 ranks cut unevenly, or leave some ranks without; a buffer that is not sharded; a tied tensor."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.embed = torch.nn.Embedding(11, 6)
        self.up = torch.nn.Linear(6, 10)
        self.down = torch.nn.Linear(10, 6)
        self.norm = torch.nn.LayerNorm(2)
        self.head = torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(5.0))

    def forward(self, tokens):
        hidden = self.down(torch.relu(self.up(self.embed(tokens))))
        return self.head(self.norm(hidden.unflatten(-1, (3, 2))).flatten(-2))


# ---- Models, by the test's name for each. Each rank makes its own.


def fsdp(ranks, **options):
    model = Net()
    for part in (model.up, model.down):
        fully_shard(part, mesh=distributed.init_device_mesh("cpu", (ranks,)), **options)
    return fully_shard(model, mesh=distributed.init_device_mesh("cpu", (ranks,)), **options)


def fsdp_mixed(ranks):
    return fsdp(ranks, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))


def fsdp_offloaded(ranks):
    return fsdp(ranks, offload_policy=CPUOffloadPolicy(pin_memory=False))


def fsdp_columns(ranks):
    mesh = distributed.init_device_mesh("cpu", (ranks,))
    return fully_shard(Net(), mesh=mesh, shard_placement_fn=lambda tensor: Shard(1 if tensor.ndim == 2 else 0))


def hsdp(ranks):
    return fully_shard(Net(), mesh=distributed.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard")))


def parallelized(mesh):
    return parallelize_module(Net(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def tp(ranks):
    return parallelized(distributed.init_device_mesh("cpu", (ranks,)))


def fsdp_tp(ranks):
    mesh = distributed.init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(parallelized(mesh["tp"]), mesh=mesh["dp"])


def placed(ranks):
    """A mapping of tensors that distribute_tensor() placed."""
    mesh = distributed.init_device_mesh("cpu", (ranks,))
    torch.manual_seed(3)
    return {f"{placement} {list(shape)}": distribute_tensor(torch.randn(shape), mesh, [placement])
            for placement in (Replicate(), Shard(0), Shard(1), Shard(-1)) for shape in ((5, 7), (1, 3, 4), (2, 2))}


# ---- The ranks.


def train(model, step):
    """Changes all parameters: those in a model by an optimizer."""
    if isinstance(model, dict):
        for tensor in model.values():
            tensor.to_local().add_(step)
        return
    model.table.add_(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.arange(8)).sum().backward()
    optimizer.step()


def disturb(model, step):
    """What may happen between an optimizer's step and a send."""
    if step == 1 and hasattr(model, "unshard"):
        model.unshard()
    if step == 2 and hasattr(model, "unshard"):  # the tensors get other addresses
        model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)
    if step == 3 and isinstance(model, torch.nn.Module):
        with torch.no_grad():
            model(torch.arange(8))


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def state_of(model):
    named = model if isinstance(model, dict) else model.state_dict()
    return {bascule.names.hf_names(name): whole(tensor) for name, tensor in named.items()}


def _trains(rank, ranks, folder, endpoint, makers):
    for maker in makers:
        model = globals()[maker](ranks)
        with bascule.Sender(f"{endpoint}-{maker}{'?wire_dtype=bf16' if maker in CAST else ''}", sharded=True) as sender:
            sender.register_model(model, timeout=PATIENCE)
            if rank == 0:
                assert sender.wait_for_workers(1, PATIENCE) == ["w"]
            for step in range(STEPS):
                train(model, step)
                wanted = state_of(model)
                if rank == 0:
                    torch.save(wanted, folder / f"{maker}-{step}.pt")
                disturb(model, step)
                if step % 2:
                    report = sender.send(step=step)
                else:
                    sender.send_async(step=step)
                    report = sender.wait_async(PATIENCE)
                assert report.complete and report.version == step + 1
            distributed.barrier()
    return "all were sent"


def _run(rank, ranks, folder, answers, does, arguments):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    try:
        answer = does(rank, ranks, folder, *arguments)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    answers.put((rank, answer))
    answers.close()
    answers.join_thread()
    os._exit(0)  # other ranks may be gone, and gloo would wait for them


class Ranks:
    """Processes that each run does(rank, ranks, folder, *arguments)."""

    def __init__(self, count, folder, does, *arguments):
        spawn = multiprocessing.get_context("spawn")
        self.answers = spawn.Queue()
        self.processes = [spawn.Process(target=_run, args=(rank, count, folder, self.answers, does, arguments))
                          for rank in range(count)]
        for process in self.processes:
            process.start()

    def __enter__(self):
        return self

    def answer(self, count):
        """What the first `count` ranks that end return, by rank."""
        return dict(self.answers.get(timeout=PATIENCE) for _ in range(count))

    def __exit__(self, *exception):
        for process in self.processes:
            process.kill()
            process.join(PATIENCE)


@pytest.mark.parametrize("ranks, makers", [
    (2, ["fsdp", "fsdp_mixed", "fsdp_offloaded", "fsdp_columns", "tp", "placed"]),
    (3, ["fsdp", "placed"]),
    (4, ["hsdp", "fsdp_tp"]),
], ids=["two", "three", "four"])
def test_engines_get_what_full_tensor_gives(ranks, makers, endpoint, tmp_path):
    with Ranks(ranks, tmp_path, _trains, endpoint, makers) as started:
        for maker in makers:
            with bascule.Receiver(f"{endpoint}-{maker}", worker="w") as receiver:
                for step in range(STEPS):
                    assert receiver.take(step + 1, PATIENCE) == step + 1, started.answer(1)
                    wanted = torch.load(tmp_path / f"{maker}-{step}.pt")
                    if maker in CAST:
                        wanted = {name: tensor.bfloat16() for name, tensor in wanted.items()}
                    found = receiver.weights()
                    assert sorted(found) == sorted(wanted)
                    for name, tensor in wanted.items():
                        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), (maker, step, name)
                    receiver.finish()
        assert started.answer(ranks) == dict.fromkeys(range(ranks), "all were sent")


def _fail(rank, ranks, folder, endpoint):
    model = fsdp(ranks)
    texts = []

    def text_of(call):
        try:
            call()
        except bascule.BasculeError as error:
            texts.append(f"{error.code}: {error}")
        else:
            texts.append("no error")

    # Other ranks expect no workers, and know none.
    with bascule.Sender(endpoint, sharded=True, expect_workers=0) as sender:
        sender.register_model(model, timeout=PATIENCE)
        if rank == 1:
            text_of(lambda: sender.wait_for_workers(1, 0))
            (folder / "no workers").write_text(texts.pop())
        text_of(lambda: sender.send(step=5 + rank))
        text_of(lambda: sender.send(step=7))
        if rank == 0:
            (folder / "before.txt").write_text(shown(endpoint))
        distributed.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        text_of(lambda: sender.send(step=8))
        (folder / "after.txt").write_text(shown(endpoint))
    return texts


def _fail_alone(rank, ranks, folder, endpoint):
    tensors = {"a": torch.ones(4)}
    with bascule.Sender(endpoint, sharded=True, expect_workers=0) as sender:
        sender.register_model(tensors, timeout=PATIENCE)
        if rank == 1:
            tensors["a"] = torch.ones(5)
        try:
            sender.send(step=1)
        except bascule.BasculeError as error:
            text = f"{error.code}: {error}"
        tensors["a"] = torch.ones(4)
        return text, sender.send(step=2).version


def test_a_tensor_that_changed_on_one_rank_is_named_on_all(endpoint, tmp_path):
    with Ranks(2, tmp_path, _fail_alone, endpoint) as started:
        answers = started.answer(2)
    for text, version in answers.values():
        assert text.startswith("INVALID_ARGUMENT") and "rank 1 (pid " in text and "tensor a: this rank holds F32 [5]" in text
        assert version == 2  # the first was aborted


def shown(endpoint):
    """What `bascule status` shows of the ranks."""
    lines = []
    status.run(endpoint, lines.append)
    return "\n".join(line for line in lines if line.startswith("  rank "))


def test_ranks_at_other_steps_and_a_killed_rank_are_named(endpoint, tmp_path):
    with Ranks(2, tmp_path, _fail, endpoint) as started:
        texts = started.answer(1)[0]
    assert texts[0].startswith("FAILED_PRECONDITION") and "rank 1" in texts[0] and "for step 6" in texts[0], texts
    assert texts[1] == "no error"
    assert texts[2].startswith("UNAVAILABLE") and "rank 1" in texts[2], texts
    assert "call it on rank 0" in (tmp_path / "no workers").read_text()
    joined = re.fullmatch(r"  rank 0 \(pid (\d+)\): joined, sends (\d+) bytes\n  rank 1 \(pid (\d+)\): joined, sends (\d+) bytes",
                          (tmp_path / "before.txt").read_text())
    assert joined and [int(joined[1]), int(joined[3])] == [each.pid for each in started.processes]
    assert int(joined[2]) and int(joined[4])
    assert re.search(r"  rank 1 \(.*\): lost, ", (tmp_path / "after.txt").read_text())


# ---- One rank, in this process.


@pytest.fixture
def alone():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def refusal(call, code="INVALID_ARGUMENT"):
    with pytest.raises(bascule.BasculeError) as caught:
        call()
    assert caught.value.code == code
    return str(caught.value)


def test_a_rank_comes_from_the_process_group(endpoint):
    text = refusal(lambda: bascule.Sender(endpoint, sharded=True), "FAILED_PRECONDITION")
    assert "call torch.distributed.init_process_group() before" in text


def test_a_world_of_one_sends_and_needs_the_step(endpoint, alone):
    model = fully_shard(Net(), mesh=alone)
    with bascule.Sender(endpoint, sharded=True, expect_workers=0) as sender:
        sender.register_model(model)
        assert "give step=n" in refusal(sender.send)
        assert "give step=n" in refusal(sender.send_async)
        assert "sends the registered tensors" in refusal(lambda: sender.send(model, step=1))
        assert "step: expected a whole number" in refusal(lambda: sender.send(step="1"))
        for call in (sender.update_weights, lambda: sender.stream([]), lambda: sender.register_adapter(model)):
            assert "this sender is sharded" in refusal(call)
        assert sender.send(step=2**64 - 1).version == 1
        model.up.register_parameter("more", torch.nn.Parameter(torch.zeros(1)))
        assert "tensor up.more is in the model and was not registered" in refusal(lambda: sender.send(step=3))
        del model.up.more
        model.table = model.table.double()
        assert "tensor table: this rank holds F64 [5] at [0] of [5]" in refusal(lambda: sender.send(step=3))
    with bascule.Sender(f"{endpoint}-whole") as sender:
        assert "sharded=True" in refusal(lambda: sender.register_model(model))
        sender.register_model(Net())
        assert "step is for a sender with sharded=True" in refusal(lambda: sender.send(step=1))


def test_what_is_no_box_is_refused_by_name_with_a_hint(endpoint, alone):
    tensors = {"partial": DTensor.from_local(torch.ones(4), alone, [Partial()]),
               "strided": DTensor.from_local(torch.ones(4), alone, [_StridedShard(0, split_factor=2)])}
    for name, tensor in tensors.items():
        with bascule.Sender(f"{endpoint}-{name}", sharded=True) as sender:
            text = refusal(lambda: sender.register_model({"fine": torch.ones(2), name: tensor}))  # noqa: B023
            assert f"tensor {name}: " in text and "stream(full_tensor())" in text


def test_tensors_on_a_gpu_need_slots_there(endpoint, alone, monkeypatch):
    places = {"a": 0, "b": 0, "c": sharded.HOST}
    monkeypatch.setattr(sharded, "describe", lambda name, tensor: ("F32", [2], [1], 4096, places[name]))
    monkeypatch.setattr(sharded, "current_stream", lambda device: 0)
    with bascule.Sender(endpoint, sharded=True) as sender:
        assert "the shards lie in device 0, and shm keeps its slots in host memory" in refusal(
            lambda: sender.register_model({"a": torch.ones(2), "b": torch.ones(2)}), "UNIMPLEMENTED")
    with bascule.Sender(f"{endpoint}-2", sharded=True) as sender:
        assert "tensor a is in the memory of GPU 0 and c in host memory" in refusal(
            lambda: sender.register_model({"a": torch.ones(2), "c": torch.ones(2)}))


def test_a_tensor_that_moves_to_a_gpu_is_refused(endpoint, alone, monkeypatch):
    with bascule.Sender(endpoint, sharded=True, expect_workers=0) as sender:
        sender.register_model({"a": torch.ones(2)})
        real = sharded.describe
        monkeypatch.setattr(sharded, "describe", lambda name, tensor: (*real(name, tensor)[:3], 4096, 0))
        assert "tensor a is in the memory of GPU 0; it was registered in host memory" in refusal(lambda: sender.send(step=1))
        monkeypatch.undo()
        assert sender.send(step=2).complete


def boxes(shape, sizes, placements):
    """Each rank's box, in a mesh of these sizes."""
    for place in itertools.product(*map(range, sizes)):
        yield place, sharded.box_of("t", list(shape), placements, list(sizes), place)


@pytest.mark.parametrize("sizes", [(1,), (4,), (2, 3), (3, 2), (2, 2, 2)], ids=str)
def test_boxes_are_those_of_torch(sizes):
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

    for placements in itertools.product([Replicate(), Shard(0), Shard(1), Shard(-1)], repeat=len(sizes)):
        for shape in [(1, 1), (5, 7), (8, 9), (13, 2)]:
            plain = [Shard(1) if placement == Shard(-1) else placement for placement in placements]
            for place, (offset, box) in boxes(shape, sizes, placements):
                wanted, begin = _compute_local_shape_and_global_offset(shape, sizes, list(place), plain)
                assert tuple(box) == wanted and (0 in box or tuple(offset) == begin)


@pytest.mark.parametrize("rows", [1, 4, 7, 8, 23])
@pytest.mark.parametrize("sizes, placements, order", [
    ((3, 2), (_StridedShard(0, split_factor=2), Shard(0)), (1, 0)),
    ((2, 2, 3), (_StridedShard(0, split_factor=6), Shard(0), Shard(0)), (1, 2, 0)),
    ((2, 3, 2), (Replicate(), _StridedShard(0, split_factor=2), Shard(0)), (2, 1)),
], ids=["FSDP+TP", "FSDP+EP+TP", "HSDP+TP"])
def test_strided_shards_are_cut_by_the_mesh_dimensions_behind_first(rows, sizes, placements, order):
    whole = torch.arange(rows)
    for place, (offset, box) in boxes((rows,), sizes, placements):
        wanted = whole
        for mesh_dim in order:
            chunks = wanted.chunk(sizes[mesh_dim])
            wanted = chunks[place[mesh_dim]] if place[mesh_dim] < len(chunks) else wanted[:0]
        assert torch.equal(whole[offset[0]:offset[0] + box[0]], wanted)


@pytest.mark.parametrize("placements", [
    (_StridedShard(0, split_factor=3), Shard(0)),
    (Shard(0), _StridedShard(0, split_factor=2)),
    (_StridedShard(0, split_factor=2), Shard(1)),
], ids=str)
def test_other_strided_shards_are_refused(placements):
    assert "stream(full_tensor())" in refusal(lambda: list(boxes((8, 8), (2, 2), placements)))
