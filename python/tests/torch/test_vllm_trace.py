"""Which boxes of a checkpoint's tensors a loader copies into one rank's parameters."""

import pytest
import torch

from bascule.vllm.trace import Untraceable, trace

RANKS = 2
CHECKPOINT = {"q": torch.arange(48.0).view(8, 6), "k": 100 + torch.arange(12.0).view(2, 6), "o": -torch.arange(48.0).view(6, 8),
              "vocabulary": torch.arange(30.0).view(5, 6), "norm": torch.full((6,), 2.0), "scale": torch.tensor(3.0)}


class Rank(torch.nn.Module):
    """A fused parameter of q's rows and all of k, which both ranks have; columns of o; a padded vocabulary."""

    def __init__(self, rank, dtype=torch.float32, padded=6):
        super().__init__()
        self.rank, self.rows = rank, padded // RANKS
        for name, shape in {"qk": (6, 6), "o": (6, 4), "vocabulary": (self.rows, 6), "norm": (6,), "scale": (1,)}.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, dtype=dtype)))

    def load_weights(self, weights):
        for name, tensor in weights:
            getattr(self, "load_" + name)(tensor)

    def load_q(self, tensor):
        self.qk.data.narrow(0, 0, 4).copy_(tensor.narrow(0, 4 * self.rank, 4))

    def load_k(self, tensor):
        self.qk.data[4:].copy_(tensor)

    def load_o(self, tensor):
        self.o.data.copy_(tensor.to(self.o.dtype).narrow(1, 4 * self.rank, 4))

    def load_vocabulary(self, tensor):
        mine = tensor[self.rows * self.rank:self.rows * (self.rank + 1)]
        self.vocabulary.data[:len(mine)].copy_(mine)
        self.vocabulary.data[len(mine):].fill_(0)

    def load_norm(self, tensor):
        self.norm.data.copy_(tensor)

    def load_scale(self, tensor):
        self.scale.data.copy_(tensor.reshape(1))


def loaded(model):
    model.load_weights(CHECKPOINT.items())
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rank", range(RANKS))
def test_each_rank_copies_its_own_boxes(rank, dtype):
    model = loaded(Rank(rank, dtype))
    found = trace(model, CHECKPOINT.items())
    assert found.shapes == {name: tuple(tensor.shape) for name, tensor in CHECKPOINT.items()}
    assert {each.name: (each.begin, tuple(each.into.shape)) for each in found.copies} == {
        "q": ((4 * rank, 0), (4, 6)), "k": ((0, 0), (2, 6)), "o": ((0, 4 * rank), (6, 4)),
        "vocabulary": ((3 * rank, 0), (3 - rank, 6)), "norm": ((0,), (6,)), "scale": ((), ())}
    for name, tensor in CHECKPOINT.items():  # what a version with other elements would give
        tensor = 1 - tensor
        for each in found.copies:
            if each.name == name:
                each.into.copy_(tensor[tuple(slice(at, at + size) for at, size in zip(each.begin, each.into.shape))])
    scattered = {name: tensor.clone() for name, tensor in model.named_parameters()}
    model.load_weights((name, 1 - tensor) for name, tensor in CHECKPOINT.items())
    assert all(torch.equal(tensor, scattered[name]) for name, tensor in model.named_parameters())


def test_a_rank_that_has_padding_alone_uses_the_tensor_all_the_same():
    found = trace(loaded(Rank(1, padded=10)), CHECKPOINT.items())
    assert [each.into.numel() for each in found.copies if each.name == "vocabulary"] == [0]


def adds(self, tensor):
    self.norm.data.copy_(tensor + 1)


def transposes(self, tensor):
    self.o.data.copy_(tensor.t()[4 * self.rank:4 * self.rank + 4].t().flip(0))


def takes_other_rows(self, tensor):
    self.o.data.copy_(tensor[:, ::2])


def omits(self, tensor):
    pass


@pytest.mark.parametrize("name, load, text", [
    ("norm", adds, "not a box of one tensor"), ("o", transposes, "not a box of one tensor"),
    ("o", takes_other_rows, "not a box of one tensor"), ("norm", omits, "does not use norm")], ids=str)
def test_other_loaders_are_refused(name, load, text):
    model = Rank(0)
    setattr(model, "load_" + name, lambda tensor: load(model, tensor))
    with pytest.raises(Untraceable, match=text):
        trace(loaded(model), CHECKPOINT.items())


def test_a_slice_with_another_bit_is_refused():
    model = loaded(Rank(1))
    with torch.no_grad():
        model.o[5, 3] += 1
    with pytest.raises(Untraceable, match="does not hold the checkpoint's o"):
        trace(model, CHECKPOINT.items())
