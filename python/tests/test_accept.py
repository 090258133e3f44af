"""An engine decides by `accept` which senders it takes, before any byte moves."""

import gc
import re
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy
import pytest

import bascule

PATIENCE = 60


@pytest.fixture
def model():
    both = numpy.ones((3, 4), numpy.float32)
    return {"a": both, "tied": both, "b": numpy.ones(5, numpy.int64)}


def sent(endpoint, model):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        return sender.send()


def test_a_sender_is_refused_for_what_it_offers_and_the_next_one_is_not(endpoint, model):
    seen = []

    def accept(tensors, description):
        seen.append(({tensor.name: (tensor.dtype, tensor.shape) for tensor in tensors}, description))
        if len(tensors) != 1:
            raise bascule.BasculeError("expected one tensor, found three", "INVALID_ARGUMENT")

    with bascule.Receiver(endpoint, worker="w", accept=accept) as receiver:
        assert "expected one tensor, found three" in sent(endpoint, model).why_incomplete
        with pytest.raises(bascule.BasculeError, match="expected one tensor, found three"):
            receiver.wait_ready(PATIENCE)
        with bascule.Sender(endpoint) as sender:
            sender.register_model({"a": model["a"]})
            sender.wait_for_workers(1)
            sender.send_async()
            assert receiver.take(timeout=PATIENCE) == 2
            receiver.finish()
            assert sender.wait_async().complete
    three = {"a": ("float32", (3, 4)), "tied": ("float32", (3, 4)), "b": ("int64", (5,))}
    assert seen == [(three, ""), ({"a": ("float32", (3, 4))}, "")]


def raises(error):
    def accept(tensors, description):
        raise error
    return accept


@pytest.mark.parametrize("accept, text", [
    (raises(ValueError("no room")), "ValueError: no room"), (raises(SystemExit(3)), "SystemExit: 3"),
    (lambda tensors, description: False, "expected None, or an exception that says why .* found False"),
    (lambda: None, "TypeError: .*positional argument")], ids=["an error", "an exit", "an answer", "other arguments"])
def test_whatever_is_not_a_return_of_none_refuses(accept, text, endpoint, model):
    with bascule.Receiver(endpoint, worker="w", accept=accept):
        with bascule.Sender(endpoint) as sender:
            sender.register_model(model)
            sender.wait_for_workers(1)
            report = sender.send()
    assert not report.complete
    assert re.search(text, report.why_incomplete), report.why_incomplete


def test_what_cannot_be_called_is_refused(endpoint):
    with pytest.raises(bascule.BasculeError, match="accept: expected a function of tensors and a description, found 7"):
        bascule.Receiver(endpoint, worker="w", accept=7)


def test_a_receiver_is_freed_although_its_function_holds_it(endpoint):
    class Engine:
        def __init__(self):
            self.receiver = bascule.Receiver(endpoint, worker="w", accept=self.accept)

        def accept(self, tensors, description):
            pass

    engine = Engine()
    receiver = weakref.ref(engine.receiver)
    del engine
    gc.collect()
    assert receiver() is None


def test_the_function_may_close_its_receiver(endpoint, model):
    closed = threading.Event()

    def accept(tensors, description):
        receiver.close()
        closed.set()

    receiver = bascule.Receiver(endpoint, worker="w", accept=accept)
    with bascule.Sender(endpoint, expect_workers=0) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        sender.send()
        assert closed.wait(PATIENCE)


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "dropped"])
def test_a_function_that_never_returns_does_not_hold_up_the_end_of_its_receiver(closes, endpoint, model, monkeypatch, caplog):
    monkeypatch.setattr(bascule.receiver, "_PATIENCE", 0.2)
    asked, returns, answered = threading.Event(), threading.Event(), threading.Event()

    def accept(tensors, description):
        asked.set()
        returns.wait()
        answered.set()

    receiver = bascule.Receiver(endpoint, worker="w", accept=accept)
    with bascule.Sender(endpoint, expect_workers=0) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        sender.send_async()
        assert asked.wait(PATIENCE)
        if closes:
            receiver.close()
            assert f"receiver w leaves {endpoint} although accept() has not returned" in caplog.text
        del receiver
        gc.collect()
        assert not answered.is_set()
        with bascule.Receiver(endpoint, worker="w") as other:  # the process's threads are free for it
            assert other.take(timeout=PATIENCE) == 1
            other.finish()
    returns.set()
    assert answered.wait(PATIENCE)


@pytest.mark.parametrize("seconds", [0.3, 3600])
def test_a_process_may_end_while_the_function_runs(seconds, endpoint, model):
    program = textwrap.dedent("""
        import logging, sys, threading, time, bascule
        logging.disable()
        asked = threading.Event()
        def accept(tensors, description):
            asked.set()
            time.sleep(float(sys.argv[2]))
        receiver = bascule.Receiver(sys.argv[1], worker="w", accept=accept)
        print("there", flush=True)
        assert asked.wait(60)
    """)
    engine = subprocess.Popen([sys.executable, "-c", program, endpoint, str(seconds)], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    try:
        assert engine.stdout.readline() == "there\n"
        with bascule.Sender(endpoint, expect_workers=0) as sender:
            sender.register_model(model)
            sender.wait_for_workers(1)
            sender.send_async()
            assert engine.communicate(timeout=PATIENCE) == ("", "")
            assert engine.returncode == 0
    finally:
        engine.kill()
