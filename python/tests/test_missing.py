"""What a trainer is told of engines that are not there."""

import logging
import subprocess
import sys
import time

import numpy
import pytest

import bascule

PATIENCE = 60


@pytest.fixture
def model():
    return {"a": numpy.zeros((3, 4), numpy.float32)}


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def members(sender):
    try:
        return sender.wait_for_workers(1, 0)
    except TimeoutError:
        return []


def follower(engines, endpoint, name):
    engine = engines(endpoint, name)
    engine.ask("follow")
    return engine


def test_engines_that_died_between_two_sends_are_named_once_and_no_version_without_engines_is_complete(
        endpoint, engines, model):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        both = [follower(engines, endpoint, name) for name in ("a", "b")]
        sender.wait_for_workers(2)
        assert sender.send().complete
        for engine in both:
            engine.kill()
        until(lambda: not members(sender))
        first, second = sender.send(), sender.send()
    assert {worker.worker: worker.state for worker in first.workers} == {"a": "evicted", "b": "evicted"}
    assert not first.complete and "a is evicted: " in first.why_incomplete and first.why_incomplete in repr(first)
    assert not second.workers and second.expected == 1 and not second.complete
    assert second.why_incomplete == "expected at least 1 worker, found 0"


@pytest.mark.parametrize("expected, why", [
    (2, "expected at least 2 workers, found 1"), (numpy.int64(2), "expected at least 2 workers, found 1"),
    (["a", "b"], "b is missing: expected, but it is not connected"), ("b", "b is missing"), (("a",), ""), (1, ""), (0, "")])
def test_fewer_engines_than_expected_are_not_complete(endpoint, engines, model, expected, why):
    with bascule.Sender(endpoint, expect_workers=expected) as sender:
        sender.register_model(model)
        follower(engines, endpoint, "a")
        sender.wait_for_workers(1)
        for _ in range(2):
            report = sender.send()
            assert why in report.why_incomplete and report.complete == (not why)
        sender.expect_workers(1)
        assert sender.send().complete
        sender.expect_workers("b")
        assert not sender.send().complete
        assert sender.send(worker_ids="a").complete, "this version is for a alone"


def test_a_trainer_may_be_alone(endpoint, model):
    with bascule.Sender(endpoint, expect_workers=0) as sender:
        sender.register_model(model)
        assert sender.send().complete


@pytest.mark.parametrize("expected", [-1, 2**40, 1.5, None, [], [1], ["a", ""], b"a".hex, [None]])
def test_wrong_expectations_are_refused(endpoint, expected):
    with pytest.raises(bascule.BasculeError, match="expect_workers: ") as error:
        bascule.Sender(endpoint, expect_workers=expected)
    assert error.value.code == "INVALID_ARGUMENT"
    with bascule.Sender(endpoint) as sender, pytest.raises(bascule.BasculeError, match="expect_workers: "):
        sender.expect_workers(expected)


def test_a_lost_engine_is_a_warning_and_one_that_joins_is_none(endpoint, engines, model, caplog):
    with caplog.at_level("INFO", "bascule"), bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        engine = follower(engines, endpoint, "lost-one")
        sender.wait_for_workers(1)
        assert sender.send().complete
        engine.kill()
        until(lambda: "gave up lost-one" in caplog.text)
    levels = {record.levelno for record in caplog.records if "gave up lost-one" in record.getMessage()}
    assert levels == {logging.WARNING}
    assert {record.levelno for record in caplog.records if "worker lost-one joined" in record.getMessage()} == {
        logging.INFO}


def test_python_prints_the_loss_of_an_engine_by_itself(endpoint):
    engine = f"import bascule, time; r = bascule.Receiver({endpoint!r}, worker='gone'); time.sleep({PATIENCE})"
    program = f"""
import bascule, numpy, subprocess, sys, time

def wait_until_alone():
    for _ in range(6000):
        try:
            sender.wait_for_workers(1, 0)
        except TimeoutError:
            break
        time.sleep(0.01)

with bascule.Sender({endpoint!r}) as sender:
    sender.register_model({{"a": numpy.ones(3)}})
    with bascule.Receiver({endpoint!r}, worker="ends"):
        sender.wait_for_workers(1)
    wait_until_alone()
    engine = subprocess.Popen([sys.executable, "-c", {engine!r}])
    sender.wait_for_workers(1)
    engine.kill()
    engine.wait()
    wait_until_alone()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "gave up gone: " in done.stderr and "joined" not in done.stderr
    assert "ends" not in done.stderr, "it said goodbye, as intended"
