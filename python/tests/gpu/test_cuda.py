"""Tensors of PyTorch on a GPU: sent, read in place, copied into, followed. Each engine is a separate process."""

import copy
import multiprocessing
import os
import queue
import signal

import pytest
import torch

import bascule
from bascule import hf

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
PATIENCE = 60
spawn = multiprocessing.get_context("spawn")


class Net(torch.nn.Module):
    def __init__(self, device="cuda", size=700):
        super().__init__()
        self.embed = torch.nn.Embedding(50, size, device=device)
        self.low = torch.nn.Linear(size, 333, dtype=torch.bfloat16, device=device)
        self.head = torch.nn.Linear(size, 50, bias=False, device=device)
        self.head.weight = self.embed.weight  # tied
        self.register_buffer("table", torch.arange(5, device=device))


@torch.no_grad()
def train(model, step):
    generator = torch.Generator(next(model.parameters()).device).manual_seed(step)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, device=parameter.device))


def bits(tensors):
    """Each tensor's device, and a checksum of its bits in their order."""
    def number(tensor):
        octets = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).to(torch.int64)
        return int((octets * torch.arange(1, len(octets) + 1)).sum())

    return {name: (tensor.device.type, number(tensor)) for name, tensor in tensors.items()}


def numbers(tensors):
    return {name: number for name, (_, number) in bits(tensors).items()}


def _engine(endpoint, kind, device, questions, answers):
    torch.zeros(1, device=device)
    model = Net(device) if kind in ("targets", "background", "bfloat16") else None
    if kind == "bfloat16":
        model.to(torch.bfloat16)
    stream = torch.cuda.Stream(device) if kind == "stream" else None
    options = {"targets": model} if model is not None else {}
    if kind == "background":
        options["apply"] = "background"
    receiver = bascule.Receiver(endpoint, worker="engine", device=device, stream=stream, **options)
    answers.put("joined")
    while (question := questions.get()) is not None:
        if question == "take":
            assert receiver.take(timeout=PATIENCE)
            tensors = receiver.weights() if kind in ("in place", "stream", "background") else model.state_dict()
            if stream is not None:
                with torch.cuda.stream(stream):
                    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
                stream.synchronize()
            answers.put(bits(tensors))
            receiver.finish()
        elif question == "kept":
            kept = receiver.weights()
            receiver.close()
            answers.put(bits(kept))
    receiver.close()


class Engine:
    def __init__(self, endpoint, kind, device="cuda"):
        self.questions, self.answers = spawn.Queue(), spawn.Queue()
        self.process = spawn.Process(target=_engine, args=(endpoint, kind, device, self.questions, self.answers))
        self.process.start()
        assert self.answer() == "joined"

    def answer(self):
        try:
            return self.answers.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no answer; the engine's exit code is {self.process.exitcode}") from None

    def take(self):
        self.questions.put("take")

    def end(self):
        self.questions.put(None)
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0


@pytest.fixture
def engine():
    started = []

    def start(*arguments):
        started.append(Engine(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.is_alive():
            each.end()


def assert_sent(sender, engine, model, device="cuda", send=None):
    torch.cuda.synchronize()
    engine.take()
    report = (send or sender.send)()
    assert report.complete, [worker.error for worker in report.workers]
    found = engine.answer()
    assert {kind for kind, _ in found.values()} == {device}
    assert {name: number for name, (_, number) in found.items()} == numbers(model.state_dict())


@pytest.mark.parametrize("kind", ["in place", "targets", "background", "stream"])
@pytest.mark.parametrize("scheme, trainer, device", [("cuda-ipc", "cuda", "cuda"), ("shm", "cuda", "cpu"),
                                                     ("shm", "cpu", "cuda"), ("shm", "cuda", "cuda")])
def test_versions_arrive_bit_for_bit(tmp_path, engine, scheme, trainer, device, kind):
    if kind == "stream" and device == "cpu":
        kind = "in place"
    endpoint = f"{scheme}://{tmp_path}/endpoint"
    model = Net(trainer)
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        follower = engine(endpoint, kind, device)
        sender.wait_for_workers(1, PATIENCE)
        for step in range(4):
            train(model, step)
            assert_sent(sender, follower, model, device)
        model.low.weight = torch.nn.Parameter(torch.randn_like(model.low.weight))  # replaced: followed
        assert_sent(sender, follower, model, device)


def test_tensors_are_cast_into_targets(tmp_path, engine):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    model = Net()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        follower = engine(endpoint, "bfloat16")
        sender.wait_for_workers(1, PATIENCE)
        train(model, 1)
        assert_sent(sender, follower, copy.deepcopy(model).to(torch.bfloat16))


def test_what_the_current_stream_still_writes_travels(tmp_path, engine):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    model = Net(size=4096)
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        follower = engine(endpoint, "in place")
        sender.wait_for_workers(1, PATIENCE)
        side = torch.cuda.Stream()
        for step in range(5):
            torch.cuda.synchronize()
            follower.take()
            with torch.cuda.stream(side), torch.no_grad():
                torch.cuda._sleep(200_000_000)  # about a tenth of a second
                model.embed.weight.fill_(float(step))
                report = sender.send()
            assert report.complete
            assert {name: number for name, (_, number) in follower.answer().items()} == numbers(model.state_dict())


def test_gathered_tensors_are_streamed_into_the_slot(tmp_path, engine):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    model = Net()
    state = model.state_dict()
    with bascule.Sender(endpoint) as sender:
        sender.register_model([bascule.TensorSpec(name, each.dtype, each.shape, "cuda") for name, each in state.items()])
        follower = engine(endpoint, "in place")
        sender.wait_for_workers(1, PATIENCE)
        for step in range(3):
            train(model, step)
            gathered = ((name, tensor.clone().mul_(1)) for name, tensor in model.state_dict().items())
            assert_sent(sender, follower, model, send=lambda: sender.stream(gathered))


def test_a_slot_outlives_its_receiver_and_its_trainer(tmp_path, engine):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    model = Net()
    sender = bascule.Sender(endpoint)
    sender.register_model(model)
    follower = engine(endpoint, "in place")
    sender.wait_for_workers(1, PATIENCE)
    assert_sent(sender, follower, model)
    sender.close()
    follower.questions.put("kept")
    assert {name: number for name, (_, number) in follower.answer().items()} == numbers(model.state_dict())


def test_a_killed_engine_is_named_and_another_takes_its_place(tmp_path, engine):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    model = Net()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        first = engine(endpoint, "in place")
        sender.wait_for_workers(1, PATIENCE)
        assert_sent(sender, first, model)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.join(PATIENCE)
        train(model, 1)
        report = sender.send()
        assert all(worker.worker == "engine" and worker.error for worker in report.workers)
        second = engine(endpoint, "in place")
        second.take()  # the version that the first one did not get
        assert {name: number for name, (_, number) in second.answer().items()} == numbers(model.state_dict())
        sender.wait_for_workers(1, PATIENCE)
        train(model, 2)
        assert_sent(sender, second, model)


def _follows(endpoint, in_place, versions, answers):
    model = Net()
    model.forward = lambda: bits(model.state_dict())
    with hf.follow(model, endpoint, worker="engine", in_place=in_place) as following:
        for version in range(1, versions + 1):
            following.wait(version, PATIENCE)
            answers.put(model())
    answers.put(model())


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_follows(tmp_path, in_place):
    endpoint = f"cuda-ipc://{tmp_path}/endpoint"
    answers = spawn.Queue()
    process = spawn.Process(target=_follows, args=(endpoint, in_place, 3, answers))
    process.start()
    model = Net()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        for step in range(3):
            train(model, step)
            assert sender.send().complete
            assert answers.get(timeout=PATIENCE) == bits(model.state_dict())
        assert answers.get(timeout=PATIENCE) == bits(model.state_dict())
    process.join(PATIENCE)
    assert process.exitcode == 0
