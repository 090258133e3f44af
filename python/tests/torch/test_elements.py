"""What stream() takes from torch, and what it refuses by name."""

import numpy
import pytest
import torch

import bascule
from bascule import hf


class Scaled(torch.Tensor):
    """Holds its elements in another tensor, as quantised and sharded tensors do."""

    @staticmethod
    def __new__(cls, codes):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes):
        self.codes = codes

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        return Scaled(arguments[0].codes)


def freed(whole=None):
    tensor = torch.ones(4, 4) if whole is None else whole
    tensor.untyped_storage().resize_(0)
    return tensor


def cut():
    tensor = torch.ones(4, 4)
    tensor.untyped_storage().resize_(60)
    return tensor


def placeholder():
    tensor = torch.nn.Parameter(torch.empty(0))
    tensor.ds_id, tensor.ds_shape = 3, torch.Size([4, 4])  # as DeepSpeed marks what it partitioned
    return tensor


class Overrun:
    """Its export fails, in the way of a library that has no memory to show."""

    shape = (4, 4)

    def __dlpack__(self, **options):
        raise BufferError("no memory")


WRONG = {
    "freed": (freed, "its storage has 0 bytes, and its shape needs 64: it was freed"),
    "cut short": (cut, "its storage has 60 bytes, and its shape needs 64: it was cut short"),
    "a view of freed memory": (lambda: freed(torch.ones(4, 6).t()[2:]), "its storage has 0 bytes"),
    "meta": (lambda: torch.ones(4, 4, device="meta"), "it is on the device meta"),
    "sparse": (lambda: torch.eye(4).to_sparse(), "it is torch.sparse_coo on cpu; expected a strided tensor"),
    "compressed": (lambda: torch.eye(4).to_sparse_csr(), "it is torch.sparse_csr on cpu"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(4), torch.ones(3)]), ""),
    "not yet initialised": (torch.nn.UninitializedParameter, ""),
    "a wrapper": (lambda: Scaled(torch.ones(4, 4)), "a Scaled keeps its elements in other tensors"),
    "a parameter of a wrapper": (lambda: torch.nn.Parameter(Scaled(torch.ones(4, 4))), "a Scaled keeps its elements"),
    "a placeholder": (placeholder, r"(it is \[0\], a placeholder of|DeepSpeed ZeRO-3 partitions it).* register specs"),
    "DLPack that fails": (Overrun, ""),
    "another byte order": (lambda: numpy.ones((4, 4), ">f4"), ""),
    "text": (lambda: numpy.full((4, 4), "x"), ""),
    "a list": (lambda: [[1.0] * 4] * 4, "expected a torch tensor, a numpy array, or an object with __dlpack__, found list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_has_no_elements_of_its_own_is_refused_by_name_and_the_next_version_is_sent(what, endpoint):
    make, text = WRONG[what]
    with bascule.Sender(endpoint) as sender:
        sender.register_model([bascule.TensorSpec("good", torch.float32, (4, 4)), bascule.TensorSpec("w", "float32", (4, 4))])
        good = torch.ones(4, 4)
        with pytest.raises(bascule.BasculeError, match=f"tensor w: {text}") as error:
            sender.stream([("good", good), ("w", make())])
        assert error.value.code == "INVALID_ARGUMENT"
        assert sender.stream([("good", good), ("w", torch.zeros(4, 4))]).version == sender.version > 0


@pytest.mark.parametrize("what", WRONG)
def test_register_and_send_refuse_the_same(what, endpoint):
    make, text = WRONG[what]
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match=f"tensor w: {text}"):
            sender.register_model({"w": make()})
        sender.register_model({"w": torch.zeros(4, 4)})
        with pytest.raises(bascule.BasculeError, match=f"tensor w: {text}"):
            sender.send({"w": make()})
        sender.send({"w": torch.zeros(4, 4)})


@pytest.mark.parametrize("what", ["freed", "cut short", "meta", "sparse", "a wrapper", "a placeholder"])
@pytest.mark.parametrize("in_place", [False, True])
def test_an_engines_tensor_without_elements_is_refused_by_name(what, in_place, endpoint):
    make, text = WRONG[what]
    model = torch.nn.Linear(4, 4)
    model.register_buffer("w", make())
    for join in (lambda: hf.follow(model, endpoint, in_place=in_place),
                 lambda: bascule.Receiver(endpoint, worker="w", targets=model),
                 lambda: bascule.Receiver(endpoint, worker="w", targets=[bascule.Target("w", make())])):
        with pytest.raises(bascule.BasculeError, match=f"tensor w: {text}") as error:
            join()
        assert error.value.code == "INVALID_ARGUMENT"


def test_a_lazy_module_is_refused_by_name(tmp_path):
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(3))
    with bascule.Sender(f"shm://{tmp_path}/endpoint") as sender:
        for call in (lambda: sender.register_model(lazy), lambda: hf.follow(lazy, sender._endpoint),
                     lambda: bascule.Receiver(sender._endpoint, worker="w", targets=lazy)):
            with pytest.raises(bascule.BasculeError, match="tensor 0.weight: it belongs to a lazy module") as error:
                call()
            assert error.value.code == "INVALID_ARGUMENT"
        lazy(torch.zeros(2, 4))
        sender.register_model(lazy)


@pytest.mark.parametrize("make", [
    lambda: torch.ones(4, 4, requires_grad=True) * 3, lambda: torch.full((8, 4), 3.0)[::2], lambda: torch.tensor(3).expand(4, 4).float(),
    lambda: torch.full((4, 4), -3j).conj().imag, lambda: numpy.full((4, 4), 3.0, "f2")[::-1], lambda: torch.full((4, 4), 3.0).bfloat16(),
], ids=["of a graph", "strided", "expanded", "negated", "numpy", "of another type"])
def test_what_torch_can_copy_is_sent(make, endpoint):
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
        sender.register_model([bascule.TensorSpec("w", torch.float32, (4, 4))])
        sender.stream([("w", make())])
        receiver.wait_ready(30)
        receiver.commit()
        assert receiver.weights()["w"].tolist() == [[3.0] * 4] * 4
