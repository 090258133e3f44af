"""Engines that load, copy and wait: take(), finish(), targets, the descriptor, and a poisoned worker."""

import asyncio
import re
import select
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
from engine_contents import contents

import bascule

PATIENCE = 60


@pytest.fixture
def model():
    return {"a": numpy.arange(12, dtype=numpy.float32).reshape(3, 4), "b": numpy.ones(5, numpy.int64)}


@pytest.fixture
def sender(endpoint, model):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        yield sender


def wait_for_state(engine, state):
    deadline = time.monotonic() + 60
    while (found := engine.ask("status")["state"]) != state:
        assert time.monotonic() < deadline, found


def test_each_version_is_what_was_sent_whatever_was_done_to_the_last_ones_arrays(endpoint):
    model = {"w": numpy.zeros((4, 3), "f4")}
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
        sender.register_model(model)
        sender.wait_for_workers(1)
        for version in range(1, 5):
            model["w"][:] = version
            sender.send_async()
            receiver.wait_ready(30, version)
            receiver.commit()
            array = receiver.weights()["w"]
            assert numpy.array_equal(array, model["w"])
            array.shape = (12,)
            assert sender.wait_async().complete


def test_a_send_returns_once_the_engine_has_loaded(endpoint, engines, model, sender):
    engine = engines(endpoint)
    sender.wait_for_workers(1)
    for version in (1, 2):
        model["a"] += 1
        sender.send_async()
        assert engine.ask("take") == {"version": version, "weights": contents(model)}
        wait_for_state(engine, "loading")
        with pytest.raises(TimeoutError):
            sender.wait_async(0.1)
        engine.ask("finish")
        assert sender.wait_async().complete
        wait_for_state(engine, "serving")


def test_a_load_that_failed_is_told_and_the_version_comes_again(endpoint, engines, model, sender):
    engine = engines(endpoint)
    sender.wait_for_workers(1)
    sender.send_async()
    engine.ask("take")
    engine.ask("finish", error="no room")
    report = sender.wait_async()
    assert not report.complete
    assert "ValueError: no room" in str(report.workers[0].error)
    assert engine.ask("take") == {"version": 1, "weights": contents(model)}
    engine.ask("finish")
    sender.wait_for_workers(1)
    wait_for_state(engine, "serving")
    assert engine.ask("status")["error"] == ""


class CodeThatFails(ValueError):
    @property
    def code(self):
        raise OSError("no code")


@pytest.mark.parametrize("error, text", [
    (OSError(2, "No such file", "\udcff"), r"No such file or directory|No such file: '\\udcff'"),
    (ValueError("\udcff"), r"ValueError: \\udcff"),
    (bascule.BasculeError("\udcff"), r"\\udcff"),
    (CodeThatFails("loading"), "CodeThatFails: loading"),
    (ValueError("x" * (64 << 20)), "ValueError: xxxx"),
], ids=lambda each: type(each).__name__)
def test_an_error_is_told_whatever_is_in_it(error, text, endpoint, sender):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        sender.wait_for_workers(1)
        sender.send_async()
        assert receiver.take() == 1
        receiver.finish(error)
        told = sender.wait_async().workers[0].error
        assert re.search(text, str(told)), str(told)[:200]
        assert len(str(told)) < 10_000
        assert receiver.take() == 1  # it comes again
        receiver.finish()


def test_take_without_a_version_waits_for_so_long(endpoint, engines, sender):
    engine = engines(endpoint)
    assert engine.ask("take", timeout=0.2)["version"] is None
    assert engine.ask("take", timeout=0.2, version=1)["code"] == "DEADLINE_EXCEEDED"
    engine.begin("take", timeout=30)
    sender.send_async()
    assert engine.answer()["version"] == 1


def test_a_sender_that_has_not_published_is_not_called_missing(endpoint, sender):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        sender.wait_for_workers(1)
        with pytest.raises(bascule.BasculeTimeoutError, match="a sender was greeted, and has not published"):
            receiver.wait_ready(0)


def test_take_without_a_sender_gives_none(endpoint):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        assert receiver.take(timeout=0) is None and receiver.take(timeout=0.1) is None
        assert "no sender" in str(receiver.status().error)


def test_targets_are_written_cast_sliced_and_joined(endpoint, model, sender):
    whole, rows, joined = numpy.zeros((3, 4), numpy.float64), numpy.zeros((1, 4), numpy.float32), numpy.zeros(10, "i8")
    targets = [bascule.Target("whole", whole, [bascule.Part("a")]),
               bascule.Target("rows", rows, [bascule.Part("a", [bascule.Slice(0, 1, 2)])]),
               bascule.Target("joined", joined, [bascule.Part("b"), bascule.Part("b")])]
    with bascule.Receiver(endpoint, worker="copies", targets=targets, apply="commit") as receiver:
        sender.wait_for_workers(1)
        for version in (1, 2):
            model["a"] += 1
            model["b"] += 1
            sender.send_async()
            receiver.wait_ready(30, version)
            assert receiver.commit().changed
            assert sender.wait_async().complete
            assert (whole == model["a"]).all() and (rows == model["a"][1:2]).all()
            assert (joined == numpy.concatenate([model["b"]] * 2)).all()


def test_targets_that_do_not_fit_are_named(endpoint, sender):
    for target, text in ((bascule.Target("t", numpy.zeros((4, 3), numpy.float32).T), "target t has the strides"),
                         (bascule.Target("", numpy.zeros(3)), "name"), (3, "expected a module, a mapping or Targets")):
        with pytest.raises(bascule.BasculeError, match=text):
            bascule.Receiver(endpoint, worker="w", targets=[target])
    with bascule.Receiver(endpoint, worker="w", targets=[bascule.Target("a", numpy.zeros((3, 5), numpy.float32))]) as w:
        sender.send_async()
        with pytest.raises(bascule.BasculeError, match=r"(?s)a.*\[3, 4\]") as error:
            w.wait_ready(30)
        assert error.value.code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT")
        with pytest.raises(bascule.BasculeError, match=r"(?s)a.*\[3, 4\]"):
            w.take(timeout=0.2)


def test_targets_that_cannot_be_written_or_have_moved_are_named(endpoint, model, sender):
    frozen = numpy.zeros((3, 4), numpy.float32)
    frozen.flags.writeable = False
    for tensor in (frozen, numpy.frombuffer(bytes(48), numpy.float32).reshape(3, 4)):
        with pytest.raises(bascule.BasculeError, match="target a must not be written"):
            bascule.Receiver(endpoint, worker="w", targets=[bascule.Target("a", tensor)], partial=True)


@pytest.mark.parametrize("apply", ["commit", "background"])
def test_a_target_without_elements_is_taken(apply, endpoint):
    places = {"none": numpy.ones((0, 4), "f4"), "some": numpy.zeros(3, "f4")}
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w", targets=places, apply=apply) as w:
        sender.register_model({"none": numpy.ones((0, 4), "f4"), "some": numpy.ones(3, "f4")})
        sender.wait_for_workers(1)
        sender.send_async()
        w.wait_ready(30)
        w.commit()
        assert sender.wait_async().complete
        assert w.weights()["some"].sum() == 3 and w.weights()["none"].shape == (0, 4)


@pytest.mark.parametrize("apply", ["commit", "background"])
def test_a_target_that_was_replaced_is_named_and_none_is_resized(apply, endpoint, model, sender):
    tensors = {name: numpy.zeros_like(tensor) for name, tensor in model.items()}
    with bascule.Receiver(endpoint, worker="w", targets=tensors, apply=apply) as receiver:
        sender.wait_for_workers(1)
        with pytest.raises(ValueError):
            tensors["a"].resize((300, 400))
        tensors["a"] = numpy.zeros((3, 4), numpy.float32)
        sender.send_async()
        receiver.wait_ready(30)
        with pytest.raises(bascule.BasculeError, match="target a was moved, replaced or changed"):
            receiver.commit()
    assert not sender.wait_async().complete


@pytest.mark.parametrize("take", ["commit", "take"])
def test_a_followers_target_that_was_replaced_is_named(take, endpoint, model):
    ranks, tensors = [], [{name: numpy.zeros_like(tensor) for name, tensor in model.items()} for _ in range(2)]

    def flip(receiver, *version):
        getattr(receiver, take)(*version)
        if take == "take":
            receiver.finish()

    with bascule.Sender(endpoint, expect_workers=["g"]) as sender:
        sender.register_model(model)
        for rank in range(2):
            ranks.append(bascule.Receiver(endpoint, worker=f"rank {rank}", group="g", rank=rank, ranks=2,
                                          targets=tensors[rank]))
        sender.wait_for_workers(2)
        for version in (1, 2):
            model["a"][...] = version
            sender.send_async()
            ranks[0].wait_ready(30, version)
            flip(ranks[0])
            if version == 2:
                tensors[1]["a"] = numpy.zeros((3, 4), numpy.float32)
                with pytest.raises(bascule.BasculeError, match="target a was moved, replaced or changed"):
                    flip(ranks[1], version)
                break
            flip(ranks[1], version)
            flip(ranks[1], version)  # which it has already
            assert sender.wait_async().complete
            assert tensors[1]["a"].sum() == 12
        for receiver in ranks:
            receiver.close()
        assert not sender.wait_async().complete


def test_without_a_version_nothing_is_flipped_or_written(endpoint, model, sender):
    tensors = {name: numpy.zeros_like(tensor) for name, tensor in model.items()}
    with bascule.Receiver(endpoint, worker="w", targets=tensors) as receiver:
        assert (receiver.commit().version, receiver.commit().changed) == (0, False)
        sender.wait_for_workers(1)
        sender.send_async()
        receiver.wait_ready(30)
        flip = receiver.commit()
        assert (flip.version, flip.changed) == (1, True)
        assert sender.wait_async().complete
        tensors["a"] = numpy.zeros((3, 4), numpy.float32)  # checked before the next flip
        again = receiver.commit()
        assert (again.version, again.changed, again.poisoned, again.slot) == (1, False, False, flip.slot)


def test_a_closed_receiver_leaves_at_once_and_its_tensors_can_be_read(endpoint, model, sender):
    receiver = bascule.Receiver(endpoint, worker="w")
    other = bascule.Receiver(endpoint, worker="other")
    sender.wait_for_workers(2)
    sender.send_async()
    for each in (receiver, other):
        each.wait_ready(30)
        each.commit()
    sender.wait_async()
    tensor = receiver.weights()["a"]
    ended = []

    def wait():
        try:
            other.wait_ready(100, version=99)
        except bascule.BasculeError as error:
            ended.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    receiver.close()
    other.close()
    thread.join(60)
    assert ended == ["CANCELLED"]
    assert all("goodbye" in str(each.error) for each in sender.send().workers), "no send waits for it"
    assert tensor.shape == (3, 4) and tensor.sum() >= 0


def test_tensors_of_a_version_are_the_same_objects(endpoint, model, sender):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        assert receiver.weights() == {}
        sender.wait_for_workers(1)
        seen = []
        for version in range(1, 5):
            sender.send_async()
            receiver.wait_ready(30, version)
            receiver.commit()
            seen.append(receiver.weights())
            assert receiver.weights()["a"] is seen[-1]["a"] and not seen[-1]["a"].flags.writeable
            sender.wait_async()
        assert len({id(weights["a"]) for weights in seen}) == 4
        seen[-1]["a"] = 0
        assert receiver.weights()["a"].shape == (3, 4), "each call makes a separate dict"


def test_a_write_through_a_tensor_ends_the_process(endpoint, model, sender):
    program = textwrap.dedent(f"""
        import ctypes, bascule
        receiver = bascule.Receiver({endpoint!r}, worker="w")
        receiver.wait_ready(30)
        receiver.commit()
        address = receiver.weights()["a"].__array_interface__["data"][0]
        print(ctypes.c_float.from_address(address).value, flush=True)
        ctypes.c_float.from_address(address).value = 1
    """)
    engine = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    sender.wait_for_workers(1)
    sender.send()
    assert engine.communicate(timeout=60)[0] == b"0.0\n"
    assert engine.returncode == -11


def test_a_tensor_can_be_read_behind_its_sender_and_its_slot(endpoint):
    kept = []
    with bascule.Receiver(endpoint, worker="w") as receiver:
        for value in range(4):
            with bascule.Sender(endpoint) as sender:
                sender.register_model({"a": numpy.full(1 << 16, float(value))})
                sender.wait_for_workers(1)
                for _ in range(3):
                    sender.send_async()
                    assert receiver.take() is not None
                    kept.append((value, receiver.weights()["a"]))
                    receiver.finish()
                    sender.wait_async()
    for value, tensor in kept:
        assert (tensor == value).all()


def test_a_tensor_outlives_its_receiver(endpoint, model, sender):
    receiver = bascule.Receiver(endpoint, worker="w")
    sender.wait_for_workers(1)
    sender.send_async()
    assert receiver.take() == 1
    tensor = receiver.weights()["a"]
    receiver.finish()
    sender.wait_async()
    receiver.close()
    sender.close()
    assert (tensor == model["a"]).all()
    with pytest.raises(bascule.BasculeError, match="closed"):
        receiver.commit()


def test_the_descriptor_wakes_an_event_loop(endpoint, sender):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        sender.wait_for_workers(1)
        poll = select.poll()
        poll.register(receiver.fileno(), select.POLLIN)
        while poll.poll(50):
            assert not receiver.commit().changed
        sender.send_async()
        changed = False
        while not changed:  # it may be readable a moment before there is work
            assert poll.poll(30_000)
            changed = receiver.commit().changed
        sender.wait_async()
        while poll.poll(50):  # it may be readable too often
            assert not receiver.commit().changed


def test_tasks_send_and_take(endpoint, model, sender):
    async def engine(receiver):
        for version in (1, 2, 3):
            assert await receiver.atake() == version
            receiver.finish()
        assert await receiver.atake(timeout=0.1) is None

    async def run():
        with bascule.Receiver(endpoint, worker="w") as receiver:
            await asyncio.to_thread(sender.wait_for_workers, 1)
            serving = asyncio.create_task(engine(receiver))
            for _ in range(3):
                assert (await sender.asend()).complete
            await serving
            sending = asyncio.create_task(sender.asend())  # no engine takes it
            await asyncio.sleep(0.2)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(sending, 1)
            assert receiver.take() == 4
            receiver.finish()
            sender.send_async()
            assert receiver.take() == 5
            receiver.finish()
            assert [update.version for update in sender.wait_async().updates] == [4]

    asyncio.run(run())


def test_a_task_that_waits_ends_where_its_receiver_is_closed_and_the_next_one_is_woken(endpoint, sender):
    async def run():
        with bascule.Receiver(endpoint, worker="w") as receiver:
            await asyncio.to_thread(sender.wait_for_workers, 1)
            descriptor = receiver.fileno()
            waiting = asyncio.create_task(receiver.atake(timeout=3600))
            await asyncio.sleep(0.1)
            with pytest.raises(bascule.BasculeError, match="another task waits") as error:
                await receiver.atake()
            assert error.value.code == "FAILED_PRECONDITION"
            receiver.close()
            with pytest.raises(bascule.BasculeError, match="closed") as error:
                await asyncio.wait_for(waiting, PATIENCE)
            assert error.value.code == "CANCELLED"
        others = []  # one of them gets the closed descriptor's number
        while len(others) < 64 and descriptor not in [each.fileno() for each in others]:
            others.append(bascule.Receiver(endpoint, worker=f"w{len(others)}"))
        taking = [asyncio.create_task(each.atake(timeout=3600)) for each in others]
        await asyncio.to_thread(sender.wait_for_workers, len(others))
        sender.send_async()
        for each, task in zip(others, taking):
            assert await asyncio.wait_for(task, PATIENCE) == 1
            each.finish()
        report = await asyncio.to_thread(sender.wait_async)
        assert {each.worker for each in report.workers if each.state != "serving"} == {"w"}, "it has left"
        for each in others:
            each.close()

    asyncio.run(run())


def test_bad_arguments_are_named(endpoint):
    for options, text in (({"apply": "later"}, "apply: expected"), ({"device": "tpu:0"}, "device: expected"),
                          ({"rank": 2, "ranks": 2, "group": "g"}, "rank"), ({"worker": ""}, "worker|name")):
        with pytest.raises(bascule.BasculeError, match=text) as error:
            bascule.Receiver(endpoint, **{"worker": "w", **options})
        assert error.value.code == "INVALID_ARGUMENT"
    with pytest.raises(bascule.BasculeError, match="smh"):
        bascule.Receiver("smh:///x", worker="w")
