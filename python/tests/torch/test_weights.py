"""weights(): each version's tensors are what was sent, whatever was done to an earlier version's."""

import pytest
import torch

import bascule
from bascule import hf


def through_a_queue(tensor):
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    queue.put(tensor)
    assert torch.equal(queue.get(), tensor)


def other_memory(tensor):
    tensor.data = torch.zeros(2)


CHANGES = {
    "a queue": through_a_queue,
    "a slice through a queue": lambda tensor: through_a_queue(tensor[1:]),
    "share_memory_": lambda tensor: tensor.share_memory_(),
    "a view's share_memory_": lambda tensor: tensor.view(-1).share_memory_(),
    "t_": lambda tensor: tensor.t_(),
    "unsqueeze_": lambda tensor: tensor.unsqueeze_(0),
    "as_strided_": lambda tensor: tensor.as_strided_((2,), (1,)),
    "data": other_memory,
    "set_": lambda tensor: tensor.set_(torch.zeros(3)),
    "requires_grad_": lambda tensor: tensor.requires_grad_(),
    "swap": lambda tensor: torch.utils.swap_tensors(tensor, torch.zeros(1)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("targets", [None, "commit", "background"])
def test_each_version_is_what_was_sent_whatever_was_done_to_the_last_one(change, targets, endpoint):
    model = {"w": torch.zeros(4, 3)}
    options = {} if targets is None else {"targets": {"w": torch.zeros(4, 3)}, "apply": targets}
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w", **options) as receiver:
        sender.register_model(model)
        sender.wait_for_workers(1)
        for version in range(1, 6):
            model["w"].fill_(version)
            sender.send_async()
            receiver.wait_ready(30, version)
            receiver.commit()
            weight = receiver.weights()["w"]
            assert torch.equal(weight, model["w"]) and not weight.requires_grad
            assert receiver.weights()["w"] is weight
            assert sender.wait_async().complete
            del weight  # swap_tensors wants the only reference
            CHANGES[change](receiver.weights()["w"])


def forward(model):
    return sorted({value for tensor in model.parameters() for value in (tensor.min().item(), tensor.max().item())})


@pytest.mark.parametrize("change", ["a queue", "share_memory_", "t_", "requires_grad_"])
def test_a_model_in_place_is_each_version_whatever_was_done_to_its_tensors(change, endpoint):
    trainer, model = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint, in_place=True):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        for version in range(1, 6):
            with torch.no_grad():
                for parameter in trainer.parameters():
                    parameter.fill_(version)
            assert sender.send().complete
            assert forward(model) == [version] and model.weight.shape == (4, 3)
            if version % 2:
                with torch.no_grad():
                    CHANGES[change](model.weight.data if change == "t_" else model.weight)
    assert forward(model) == [5]
