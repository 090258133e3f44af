"""Signals whose handlers raise, at random moments of a call: the call ends with what they raised, and nothing is lost."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager

import numpy
import pytest

import bascule

PATIENCE = 60


class Stop(Exception):
    """What the handler raises; like KeyboardInterrupt, no error of Bascule."""


@contextmanager
def stops(call):
    """Yields a function that makes the call, with a signal after a random time; it returns the exception's type."""
    def act():
        call()

    def handler(_, frame):  # raises only within act()
        while frame is not None and frame.f_code is not act.__code__:
            frame = frame.f_back
        if frame is not None:
            raise Stop

    def outcome(within):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, within))
        try:
            act()
        except Exception as error:
            return type(error)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield outcome
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pair(endpoint):
    with bascule.Sender(endpoint, log=lambda _: None) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
        sender.register_model({"a": numpy.zeros(4)})
        sender.wait_for_workers(1, PATIENCE)
        yield sender, receiver


WAITS = {
    "wait_for_workers": lambda sender, receiver: sender.wait_for_workers(2, timeout=0.04),
    "wait_ready": lambda sender, receiver: receiver.wait_ready(0.04, 10),
    "take a version": lambda sender, receiver: receiver.take(10, timeout=0.04),
    "take": lambda sender, receiver: receiver.take(timeout=0.04),
    "an error at once": lambda sender, receiver: sender.send(worker_ids=["unknown"]),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_in_the_last_moments_of_a_wait_is_what_it_raises(wait, pair):
    sender, receiver = pair
    with stops(lambda: WAITS[wait](*pair)) as outcome:
        outcomes = {outcome(0.0005 if wait == "an error at once" else 0.05) for _ in range(60)}
    assert Stop in outcomes
    assert outcomes <= {Stop, bascule.BasculeTimeoutError, bascule.BasculeError, None}  # and no other RuntimeError
    sender.send_async()
    assert receiver.take(timeout=PATIENCE) == 1
    receiver.finish()
    assert sender.wait_async(PATIENCE).complete


def test_ctrl_c_ends_observe(endpoint):
    run = "import sys, bascule\n"
    options = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    trainer = subprocess.Popen([sys.executable, "-c", run + textwrap.dedent("""
        sender = bascule.Sender(sys.argv[1])
        print("listens", flush=True)
        input()
    """), endpoint], **options)
    assert trainer.stdout.readline() == "listens\n"
    trainer.send_signal(signal.SIGSTOP)  # it does not answer
    observer = subprocess.Popen([sys.executable, "-c", run + textwrap.dedent("""
        print("observes", flush=True)
        try:
            bascule.observe(sys.argv[1] + "?suspect_after=1h")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """), endpoint], **options)
    try:
        assert observer.stdout.readline() == "observes\n"
        time.sleep(0.3)
        observer.send_signal(signal.SIGINT)
        assert observer.communicate(timeout=PATIENCE) == ("interrupted\n", "")
    finally:
        trainer.kill()
        observer.kill()
        trainer.communicate(), observer.communicate()
