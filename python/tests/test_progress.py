"""The stages of a send as they pass, and its report as numbers."""

import time

import numpy
import pytest

import bascule

PATIENCE = 60


def until(reached):
    """The log thread reports a little later than send() returns."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_stage_is_reported_worker_by_worker(endpoint, engines):
    seen = []
    with bascule.Sender(endpoint, expect_workers=2, progress=seen.append) as sender:
        sender.register_model({"w": numpy.zeros(1000, numpy.float32)})
        a, b = engines(endpoint, "a"), engines(endpoint, "b: prepare")
        sender.wait_for_workers(2)
        for version in (1, 2):
            seen.clear()
            sender.send_async()
            for engine in (a, b):
                engine.ask("commit", version=version)
            assert sender.wait_async().complete
            until(lambda: ("commit", 2, 2) in seen)
            assert [each for each in seen if each.of == 2] == [
                ("pack", 0, 2), ("pack", 2, 2), ("prepare", 0, 2), ("prepare", 1, 2), ("prepare", 2, 2),
                ("commit", 0, 2), ("commit", 1, 2), ("commit", 2, 2)]


def test_a_worker_that_takes_part_alone_passes_all_stages(endpoint, engines):
    seen = []
    with bascule.Sender(endpoint, progress=seen.append) as sender:
        sender.register_model({"w": numpy.zeros(1000, numpy.float32)})
        engine = engines(endpoint, "a")
        sender.wait_for_workers(1)
        for version in (1, 2):
            seen.clear()
            sender.send_async()
            engine.ask("commit", version=version)
            assert sender.wait_async().complete
            until(lambda: ("commit", 1, 1) in seen)
            assert seen == [("pack", 0, 1), ("pack", 1, 1), ("prepare", 0, 1), ("prepare", 1, 1), ("commit", 0, 1), ("commit", 1, 1)]


def test_a_worker_that_fails_no_longer_takes_part(endpoint):
    from bascule.progress import Stages

    seen = []
    stages = Stages(seen.append)
    for line in ("to a: prepare", "to b: prepare", "to a: sealed", "to b: sealed", "from b: failed", "from a: prepared",
                 "to a: decided", "from a: ack", "from c: ack", "from a: bye", "to rank 1: write"):
        stages(line)
    assert seen[2:] == [("pack", 2, 2), ("prepare", 0, 2), ("prepare", 0, 1), ("prepare", 1, 1), ("commit", 0, 1), ("commit", 1, 1)]


def test_a_function_that_fails_disturbs_no_send(endpoint, engines, caplog):
    def fail(_):
        raise ValueError("a broken bar")

    with bascule.Sender(endpoint, progress=fail) as sender:
        sender.register_model({"w": numpy.zeros(10, numpy.float32)})
        engine = engines(endpoint, "a")
        sender.wait_for_workers(1)
        sender.send_async()
        engine.ask("commit", version=1)
        assert sender.wait_async().complete
        until(lambda: "a broken bar" in caplog.text)


def test_what_is_no_function_is_refused(endpoint):
    with pytest.raises(bascule.BasculeError, match="progress: expected a function of a Progress, found str"):
        bascule.Sender(endpoint, progress="bar")


def test_a_report_as_numbers(endpoint, engines):
    with bascule.Sender(endpoint, expect_workers=["a", "missing"]) as sender:
        sender.register_model({"w": numpy.zeros(1000, numpy.float32)})
        engine = engines(endpoint, "a")
        sender.wait_for_workers(1)
        sender.send_async()
        engine.ask("commit", version=1)
        report = sender.wait_async()
    numbers = bascule.scalars(report)
    assert numbers["sync/version"] == 1 and numbers["sync/bytes"] == 4000 and numbers["sync/workers"] == 1
    assert numbers["sync/complete"] == 0 and numbers["sync/seconds/total"] == report.seconds.total > 0
    assert numbers["sync/worker/a/seconds"] == report.workers[0].seconds
    assert not any("missing" in name for name in numbers) and all(type(each) is float for each in numbers.values())
    assert set(bascule.scalars(report, prefix="")) == {name.removeprefix("sync/") for name in numbers}
