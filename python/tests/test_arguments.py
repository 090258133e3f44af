"""Arguments of a wrong type or in a wrong place are refused by name, and the rest of the small print."""

import asyncio
import copy
import math
import pickle
from pathlib import Path

import numpy
import pytest

import bascule

PATIENCE = 60
URL = "endpoint: expected a URL"


def refused(text, call, *arguments, **options):
    with pytest.raises(bascule.BasculeError, match=text) as error:
        call(*arguments, **options)
    assert error.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("value", [None, Path("/tmp/x"), b"shm:///x", 7, ["shm:///x"]])
def test_what_is_no_url_is_refused_by_name(value):
    refused(URL, bascule.Sender, value)
    refused(URL, bascule.Receiver, value, worker="w")
    if not isinstance(value, Path):
        refused("target: expected a str", bascule.observe, value)


@pytest.mark.parametrize("value", ["false", 0, None])
def test_a_text_does_not_make_a_sender_sharded(endpoint, value):
    refused("sharded: expected True or False, found", bascule.Sender, endpoint, sharded=value)


def test_a_path_is_told_how_its_url_is_written():
    refused(r"found PosixPath\('/run/x'\); for a folder, write a scheme, :// and its absolute path", bascule.Sender, Path("/run/x"))


@pytest.mark.parametrize("options, text", [
    ({"worker": None}, "worker: expected a str, found None"), ({"worker": Path("w")}, "worker: expected a str"),
    ({"worker": "\ud800"}, "worker: .*not valid Unicode"), ({"group": 1}, "group: expected a str"),
    ({"rank": "0"}, "rank: expected a whole number"), ({"rank": 2**40}, "rank: expected"),
    ({"rank": -1}, "rank: expected 0 or more"), ({"ranks": 0}, "ranks: expected 1 or more"),
    ({"ranks": 1.0}, "ranks: expected a whole number")])
def test_a_receivers_arguments_are_refused_by_name(endpoint, options, text):
    refused(text, bascule.Receiver, endpoint, **{"worker": "w", **options})


@pytest.mark.parametrize("options, text", [
    ({"stream": "x"}, "stream: expected a whole number, found 'x'"), ({"stream": -1}, "stream: expected 0 or more"),
    ({"device": "cuda:99999999999"}, 'device: expected "cpu" or "cuda:N"'),
    ({"device": "cuda:" + "9" * 5000}, "device: expected")])
def test_a_receivers_place_is_refused_by_name(endpoint, options, text):
    refused(text, bascule.Receiver, endpoint, worker="w", **options)


@pytest.mark.parametrize("arguments, text", [
    ({"name": 5}, "the name of a target: expected a str, found 5"),
    ({"name": "\ud800"}, "the name of a target: .*Unicode"), ({"parts": 5}, "target t: parts: expected"),
    ({"parts": "y"}, "target t: parts: expected objects of the class Part, found 'y'"),
    ({"parts": [bascule.Part(5)]}, "target t: the tensor of a part: expected a str, found 5"),
    ({"parts": [bascule.Part("y", [3])]}, "target t: slices: expected objects of the class Slice, found 3"),
    ({"parts": [bascule.Part("y", [bascule.Slice(0, 0.0, 1)])]}, "target t: begin: expected a whole number, found 0.0"),
    ({"parts": [bascule.Part("y", [bascule.Slice(0, 0, 2**63)])]}, "target t: end: expected 0 or more, at most"),
    ({"parts": [bascule.Part("y", [bascule.Slice(-1, 0, 1)])]}, "target t: dim: expected 0 or more, found -1"),
    ({"join_dim": "0"}, "target t: join_dim: expected a whole number, found '0'")])
def test_a_targets_arguments_are_refused_by_name(endpoint, arguments, text):
    target = bascule.Target(**{"name": "t", "tensor": numpy.zeros(3), **arguments})
    refused(text, bascule.Receiver, endpoint, worker="w", targets=[target])


def test_a_senders_arguments_are_refused_by_name(endpoint):
    refused("threads: expected a whole number, found '4'", bascule.Sender, endpoint, threads="4")
    refused("threads: expected 0 or more", bascule.Sender, endpoint, threads=-1)
    refused("threads: expected 0 or more, at most", bascule.Sender, endpoint, threads=2**31)
    with bascule.Sender(endpoint) as sender:
        for model in ({"a": numpy.ones(3)}, [bascule.TensorSpec("a", "float32", [3])]):
            refused("rename: expected a function .* found 5", sender.register_model, model, rename=5)
        sender.register_model({"a": numpy.ones(3)})
        for count, text in (("2", "whole number"), (None, "whole number"), (1.5, "whole number"), (-1, "0 or more")):
            refused(f"count: expected .*{text}", sender.wait_for_workers, count)
        for timeout in (None, "3", -1, math.nan, [1], 10**400, 10**5000):
            refused("timeout: expected seconds", sender.wait_for_workers, 1, timeout)
        for timeout in ("3", -1, math.nan, [1]):
            refused("timeout: expected seconds", sender.wait_async, timeout)
        for names, text in ((3, "names, found 3"), ([1], "a str, found 1"), ([None], "a str"), (["\ud800"], "Unicode")):
            for call in (sender.send, sender.send_async):
                refused(f"worker_ids: .*{text}", call, worker_ids=names)
        assert sender.wait_for_workers(numpy.int32(0), numpy.float32(1)) == []
        with bascule.Receiver(endpoint, worker="w") as receiver:
            for version in ("1", 1.5, -1, 2**64):
                for call in (receiver.commit, receiver.take):
                    refused("version: expected", call, version)
                refused("version: expected", receiver.wait_ready, 1, version)
            for timeout in (None, "3", -1, math.nan):
                refused("timeout: expected seconds", receiver.take, None, timeout)
                refused("timeout: expected seconds", receiver.wait_ready, timeout)


def test_a_second_end_in_one_process_is_told_so(endpoint):
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="this process, pid .* has a sender at .* already; close that one"):
            bascule.Sender(endpoint)
        sender.register_model({"a": numpy.ones(3)})
        with bascule.Receiver(endpoint, worker="w"):
            sender.wait_for_workers(1)
            with bascule.Receiver(endpoint, worker="w") as again:
                with pytest.raises(bascule.BasculeError, match="another worker named w .* from the same process; close that one first"):
                    again.wait_ready(0.5)


@pytest.mark.parametrize("more", [80, 95, 250])
def test_an_endpoints_folder_may_have_a_long_path(tmp_path, engines, more):
    endpoint = f"shm://{tmp_path}/{'f' * more}"
    engine = engines(endpoint)
    engine.ask("follow")
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"a": numpy.ones(3)})
        sender.wait_for_workers(1)
        assert sender.send().complete
        assert bascule.observe(endpoint).sender and not bascule.observe(Path(tmp_path / ("f" * more))).wrong


@pytest.mark.parametrize("endpoint", ["shm://{}/e", "memmap://{}/e"])
def test_a_name_that_safetensors_keeps_is_refused_at_the_registration(tmp_path, endpoint):
    for model in ({"__metadata__": numpy.ones(3)}, [bascule.TensorSpec("__metadata__", "float32", [3])]):
        with bascule.Sender(endpoint.format(tmp_path)) as sender:
            refused("__metadata__, which safetensors keeps for itself", sender.register_model, model)


def test_weights_are_a_dict_that_can_be_copied_and_pickled(endpoint):
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
        sender.register_model({"a": numpy.arange(12, dtype="f4"), "b": numpy.ones(3)})
        sender.wait_for_workers(1)
        sender.send_async()
        receiver.wait_ready(PATIENCE)
        receiver.commit()
        sender.wait_async()
        weights = receiver.weights()
        for each in (copy.copy(weights), copy.deepcopy(weights), pickle.loads(pickle.dumps(weights)), dict(weights),
                     {**weights}, weights | {}):
            assert type(each) is dict and list(each) == ["a", "b"] and numpy.array_equal(each["a"], numpy.arange(12))
        del weights["a"]
        assert set(receiver.weights()) == {"a", "b"}, "each call returns a dict of the caller's own"


def test_complex_tensors_are_sent(endpoint, engines):
    turns = numpy.exp(1j * numpy.arange(6)).astype(numpy.complex64).reshape(2, 3)
    engine = engines(endpoint)
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"freqs": turns.T})
        sender.wait_for_workers(1)
        sender.send_async()
        from engine_contents import contents
        assert engine.ask("commit", version=1)["weights"] == contents({"freqs": turns.T})
        sender.wait_async()


def test_records_have_a_repr(endpoint):
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
        sender.register_model({"a": numpy.ones(3)})
        sender.wait_for_workers(1)
        sender.update_weights()
        assert receiver.take() == 1
        receiver.finish()
        sender.send_async()
        assert receiver.take() == 2
        receiver.finish()
        report, seen = sender.wait_async(), bascule.observe(endpoint)
        for record in (report, report.seconds, report.workers[0], report.updates[0], seen, seen.workers[0],
                       seen.slots[0], receiver.status(), receiver.commit()):
            assert repr(record).startswith(f"<{type(record).__name__} ") and " object at " not in repr(record), record
    assert repr(report.updates[0]) == "<UpdateReport version 1, 1 workers>"


def test_ends_are_asynchronous_contexts_and_waiting_for_workers_can_be_awaited(endpoint):
    async def run():
        async with bascule.Sender(endpoint) as sender:
            sender.register_model({"a": numpy.ones(3)})
            with pytest.raises(TimeoutError, match="expected 1 workers"):
                await sender.await_for_workers(1, 0.05)
            refused_count = pytest.raises(bascule.BasculeError, match="count: expected")
            with refused_count:
                await sender.await_for_workers("1")
            waiting = asyncio.create_task(sender.await_for_workers(1, PATIENCE))
            await asyncio.sleep(0)  # other tasks run meanwhile
            async with bascule.Receiver(endpoint, worker="w") as receiver:
                assert await waiting == ["w"]
                sending = asyncio.create_task(sender.asend())
                assert await receiver.atake(PATIENCE) == 1
                receiver.finish()
                assert (await sending).complete
            assert "closed" in repr(receiver)
            waiting = asyncio.create_task(sender.await_for_workers(5, 3600))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(waiting, PATIENCE)
            assert sender.version == 1
        assert "closed" in repr(sender)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
