"""Torch refuses a backward pass after a flip: its gradients would belong to no version."""

import pytest
import torch

import bascule
from bascule import hf

PATIENCE = 60


def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


class Follows:
    """A model and a function that brings it the next version, for each way in which a module gets versions."""

    def __init__(self, kind, sender, endpoint):
        self.model, self._sender = model(), sender
        if kind in ("copies", "in place"):
            self._end = hf.follow(self.model, endpoint, worker="w", in_place=kind == "in place")
            self.next = sender.send
        else:
            self._end = bascule.Receiver(endpoint, worker="w", targets=self.model)
            self.next = self._commit if kind == "targets, commit" else self._take
        sender.wait_for_workers(1, PATIENCE)

    def _commit(self):
        version = self._sender.version + 1
        self._sender.send_async()
        self._end.wait_ready(PATIENCE, version)
        assert self._end.commit().changed
        assert self._sender.wait_async(PATIENCE).complete

    def _take(self):
        self._sender.send_async()
        assert self._end.take(timeout=PATIENCE)
        self._end.finish()
        assert self._sender.wait_async(PATIENCE).complete

    def close(self):
        self._end.close()


@pytest.mark.parametrize("kind", ["copies", "in place", "targets, commit", "targets, take"])
def test_a_backward_pass_over_a_flip_raises_an_error(kind, endpoint):
    trained = model()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(trained)
        follows = Follows(kind, sender, endpoint)
        try:
            for _ in range(2):  # before the model's first version, and later
                x = torch.ones(2, 3, requires_grad=True)
                loss = follows.model(x).sum()
                for _ in range(2):  # into the slot that had the weights of `loss`
                    with torch.no_grad():
                        for parameter in trained.parameters():
                            parameter.add_(1)
                    follows.next()
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    loss.backward()
            x = torch.ones(2, 3, requires_grad=True)
            follows.model(x).sum().backward()
            y = torch.ones(2, 3, requires_grad=True)
            trained(y).sum().backward()
            assert torch.equal(x.grad, y.grad)
        finally:
            follows.close()


def test_held_keeps_the_version_of_a_backward_pass(endpoint):
    trained, served = model(), model()
    with bascule.Sender(endpoint) as sender, hf.follow(served, endpoint, worker="w") as following:
        sender.register_model(trained)
        sender.wait_for_workers(1, PATIENCE)
        sender.send()
        with following.held():
            loss = served(torch.ones(2, 3)).sum()
            sender.send_async()
            loss.backward()
        assert sender.wait_async(PATIENCE).complete
        trained(torch.ones(2, 3)).sum().backward()
        assert torch.equal(served[0].weight.grad, trained[0].weight.grad)
