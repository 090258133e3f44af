"""How vLLM's engine core follows adapters. vLLM is not needed: the core and its workers are stand-ins, the receivers real."""

import logging
import os
import queue
import threading
import time
from types import SimpleNamespace

import numpy
import pytest

import bascule
from bascule.vllm import adapter_core, adapter_rank, busy_loop
from bascule.vllm.adapters import Configured

PATIENCE = 60


class Core:
    """An engine core with workers in this process."""

    def __init__(self, ranks=1):
        self.input_queue = queue.Queue()
        self.model_executor = SimpleNamespace(sleeping_tags=())
        self.scheduler = SimpleNamespace(requests={}, add_request=None)
        parallel = SimpleNamespace(world_size=ranks, data_parallel_size=1, data_parallel_index=0)
        config = SimpleNamespace(parallel_config=parallel, model_config=SimpleNamespace(quantization=None), instance_id="id")
        self.workers = [SimpleNamespace(rank=rank, device=SimpleNamespace(type="cpu"), vllm_config=config,
                                        model_runner=SimpleNamespace(lora_manager=SimpleNamespace(_load_adapter=None)))
                        for rank in range(ranks)]
        self.calls = []

    def collective_rpc(self, function, args=()):
        self.calls.append(function)
        return [function(worker, *args) for worker in self.workers]

    def _handle_client_request(self, kind, request):
        pass

    def run_until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            try:
                self._handle_client_request(*self.input_queue.get(timeout=0.02))
            except queue.Empty:
                pass


@pytest.fixture
def core():
    made = Core(ranks=2)
    yield made
    for worker in made.workers:
        for name in list(worker.bascule_adapters._receivers):
            worker.bascule_adapters.leave(name)


@pytest.fixture
def failing(monkeypatch):
    """The errors that joining raises, by rank and the endpoint's name."""
    errors = {}

    def receiver(endpoint, *, rank, **options):
        if error := errors.get((rank, endpoint.rpartition("/")[2])):
            raise error
        return bascule.Receiver(endpoint, rank=rank, **options)

    monkeypatch.setattr(adapter_rank, "Receiver", receiver)
    return errors


def sending(endpoint):
    sender = bascule.Sender(endpoint)
    sender.register_model({"a": numpy.ones(3, numpy.float32)})
    return sender


def joined(sender, core, ranks=2):
    """Waits for the engine's ranks while its busy loop runs."""
    done = threading.Event()
    thread = threading.Thread(target=lambda: (sender.wait_for_workers(ranks, PATIENCE), done.set()))
    thread.start()
    core.run_until(done.is_set)
    thread.join()


def test_an_endpoint_that_cannot_be_joined_is_tried_again_and_holds_up_no_other(tmp_path, core, failing, caplog):
    failing[1, "code"] = bascule.BasculeError("no descriptors left", "RESOURCE_EXHAUSTED")  # in rank 1 only
    follower = adapter_core.AdapterFollower(core, Configured(folder=f"shm://{tmp_path}"))
    follower.start()
    with sending(f"shm://{tmp_path}/code") as code, sending(f"shm://{tmp_path}/math") as math:
        joined(math, core)
        core.run_until(lambda: core.calls.count(adapter_rank.join) > 3)
        assert follower.report()["code"]["error"] == "no descriptors left" and not follower.report()["math"]["error"]
        assert [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR] == [
            "adapter code cannot be followed, and is tried again every few seconds: no descriptors left"]
        assert "code" not in core.workers[0].bascule_adapters._receivers
        failing.clear()
        joined(code, core)
        assert follower.report()["code"]["error"] == ""


def test_a_named_endpoint_that_cannot_be_joined_ends_the_start(tmp_path, core, failing):
    failing[0, "math"] = ValueError("no such device")
    follower = adapter_core.AdapterFollower(core, Configured(named={"math": f"shm://{tmp_path}/math"}))
    with pytest.raises(bascule.BasculeError, match="adapter math: ValueError: no such device"):
        follower.start()


@pytest.mark.parametrize("passes, error, text", [
    (lambda worker, address: None, bascule.BasculeTimeoutError, "all 2 workers .* rank 0 did not pass its descriptor"),
    (lambda worker, address: worker.rank or connect(address), bascule.BasculeError, "passed no descriptor")],
    ids=["none is rank 0", "nothing in the message"])
def test_a_descriptor_that_does_not_come_is_an_error(passes, error, text, monkeypatch):
    monkeypatch.setattr(busy_loop, "_PATIENCE", 0.2)
    with pytest.raises(error, match=text):
        busy_loop.descriptor_of_rank_0(Core(ranks=2), passes)


def connect(address):
    with busy_loop.socket.socket(busy_loop.socket.AF_UNIX) as connection:
        connection.connect(address)


def test_the_descriptor_of_rank_0_comes():
    ours = os.eventfd(7)
    theirs = busy_loop.descriptor_of_rank_0(
        Core(ranks=2), lambda worker, address: worker.rank or busy_loop.send_descriptor(address, ours))
    assert theirs != ours and os.eventfd_read(theirs) == 7
    os.close(theirs)
    os.close(ours)
