"""A followed model whose calls, copies and waits are interrupted by signals at random moments follows on."""

import copy
import random
import signal
import threading
import time

import pytest
import torch

import bascule
from bascule import hf

PATIENCE = 60


class Stop(Exception):
    """What the signal's handler raises."""


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)

    def generate(self, x):
        for _ in range(3):
            yield self(x)


def held(model, following):
    with following.held():
        pass


CALLS = {
    "forward": lambda model, following: model(torch.zeros(1, 2)),
    "generate": lambda model, following: list(model.generate(torch.zeros(1, 2))),
    "state_dict": lambda model, following: model.state_dict(),
    "deepcopy": lambda model, following: copy.deepcopy(model),
    "held": held,
    "wait": lambda model, following: following.wait(following.version + 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_model_follows_on_whatever_a_signal_interrupts(call, endpoint):
    trained, served = Model(), Model()
    done, failed = threading.Event(), []

    def train():
        while not done.is_set() and not failed:
            if not (report := sender.send()).complete:
                failed.append(report.why_incomplete)

    def act():
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            CALLS[call](served, following)

    def stop(_, frame):  # raises only within act()
        while frame is not None and frame.f_code is not act.__code__:
            frame = frame.f_back
        if frame is not None:
            raise Stop

    with bascule.Sender(endpoint + "?flip_timeout=5s", log=lambda _: None) as sender:
        sender.register_model(trained)
        with hf.follow(served, endpoint, worker="w", at="call" if call == "generate" else "token") as following:
            sender.wait_for_workers(1, PATIENCE)
            thread = threading.Thread(target=train)
            thread.start()
            before = signal.signal(signal.SIGALRM, stop)
            try:
                for _ in range(1000):
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
                    try:
                        act()
                    except Stop:
                        pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
                done.set()
                thread.join(PATIENCE)
            assert failed == []
            with torch.no_grad():
                trained.layer.weight.fill_(5)
            assert sender.send().complete
            assert torch.equal(served.layer.weight, trained.layer.weight)


def test_a_close_that_a_signal_interrupted_can_be_repeated(endpoint):
    trained, served = Model(), Model()
    ready, release = threading.Event(), threading.Event()

    def hold():
        with following.held():
            ready.set()
            release.wait(PATIENCE)

    def stop(*_):
        raise Stop

    with bascule.Sender(endpoint) as sender:
        sender.register_model(trained)
        following = hf.follow(served, endpoint, worker="w")
        sender.wait_for_workers(1, PATIENCE)
        sender.send()
        holder = threading.Thread(target=hold)
        holder.start()
        ready.wait(PATIENCE)
        before = signal.signal(signal.SIGALRM, stop)
        try:
            for _ in range(3):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises(Stop):
                    following.close()
        finally:
            signal.signal(signal.SIGALRM, before)
        release.set()
        following.close()
        holder.join(PATIENCE)
        assert torch.equal(served.layer.weight, trained.layer.weight)
        with pytest.raises(bascule.BasculeError, match="no longer follows"):
            following.wait(2, timeout=0)


def test_a_signals_handler_may_close_a_following_that_is_closing(endpoint):
    served = Model()
    following = hf.follow(served, endpoint, worker="w")
    closed = []

    def close(*_):
        following.close()
        closed.append(True)

    def hold():
        with following.held():
            ready.set()
            release.wait(PATIENCE)

    ready, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait(PATIENCE)
    before = signal.signal(signal.SIGALRM, close)
    threading.Timer(0.3, release.set).start()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        following.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    holder.join(PATIENCE)
    assert closed == [True]
