"""Every element type that is sent arrives bit by bit, and adapters are refused by name."""

import copy
import logging
import pickle

import pytest

torch = pytest.importorskip("torch")

import bascule  # noqa: E402
from bascule import hf  # noqa: E402

PATIENCE = 60
TYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
         "uint8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
         "float4_e2m1fn_x2", "complex64"]


def every_type():
    torch.manual_seed(0)
    tensors = {}
    for name in TYPES:
        dtype = getattr(torch, name)
        many = 2 if dtype == torch.bool else 256
        tensors[name] = torch.randint(0, many, (3, 8 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    return tensors


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


def serve(sender, receiver):
    sender.wait_for_workers(1)
    sender.send_async()
    assert receiver.take(timeout=PATIENCE)
    weights = receiver.weights()
    receiver.finish()
    assert sender.wait_async().complete
    return weights


@pytest.mark.parametrize("scheme", ["shm", "memmap"])
def test_every_type_arrives_bit_by_bit(tmp_path, scheme):
    tensors = every_type()
    with bascule.Sender(f"{scheme}://{tmp_path}/e") as sender, \
            bascule.Receiver(f"{scheme}://{tmp_path}/e", worker="w") as receiver:
        sender.register_model(tensors)
        weights = serve(sender, receiver)
        for name, tensor in tensors.items():
            assert weights[name].dtype == tensor.dtype and weights[name].shape == tensor.shape
            assert torch.equal(bits(weights[name]), bits(tensor)), name
        if scheme == "memmap":
            from safetensors.torch import load_file

            found = load_file(tmp_path / "e" / "newest" / "model.safetensors")
            for name, tensor in tensors.items():
                assert found[name].dtype == tensor.dtype and torch.equal(bits(found[name]), bits(tensor)), name


def test_a_checkpoint_with_every_type_is_sent(tmp_path):
    from safetensors.torch import save_file

    from bascule import checkpoint

    tensors = every_type()
    save_file(tensors, tmp_path / "model.safetensors")
    import threading
    reports = []
    endpoint = f"shm://{tmp_path}/e"
    sending = threading.Thread(target=lambda: reports.append(checkpoint.send(str(tmp_path), endpoint, 1, PATIENCE)))
    with bascule.Receiver(endpoint, worker="w") as receiver:
        sending.start()
        assert receiver.take(timeout=PATIENCE) == 1
        for name, tensor in receiver.weights().items():
            assert torch.equal(bits(tensor), bits(tensors[name])), name
        receiver.finish()
        sending.join(PATIENCE)
    assert reports[0].complete


def test_weights_are_copied_pickled_and_saved(tmp_path):
    from safetensors.torch import load_file, save_file

    tensors = {"a": torch.randn(3, 4), "b": torch.randn(5).bfloat16()}
    with bascule.Sender(f"shm://{tmp_path}/e") as sender, \
            bascule.Receiver(f"shm://{tmp_path}/e", worker="w") as receiver:
        sender.register_model(tensors)
        weights = serve(sender, receiver)
        save_file(weights, tmp_path / "saved.safetensors")
        torch.save(weights, tmp_path / "saved.pt")
        for each in (copy.copy(weights), copy.deepcopy(weights), pickle.loads(pickle.dumps(weights)),
                     load_file(tmp_path / "saved.safetensors"), torch.load(tmp_path / "saved.pt")):
            assert type(each) is dict and all(torch.equal(each[name], tensors[name]) for name in tensors)


def test_a_conjugate_view_is_refused(tmp_path):
    with bascule.Sender(f"shm://{tmp_path}/e") as sender:
        with pytest.raises(bascule.BasculeError, match="tensor a: .*conjugated.*resolve_conj"):
            sender.register_model({"a": torch.ones(3, dtype=torch.complex64).conj()})


def test_a_stream_that_becomes_infinite_in_float16_is_warned_of(tmp_path, caplog):
    with bascule.Sender(f"shm://{tmp_path}/e", expect_workers=0) as sender:
        sender.register_model([bascule.TensorSpec("a", torch.float16, [2]), bascule.TensorSpec("b", torch.float16, [2])])
        sender.stream([("a", torch.tensor([1.0, 7e4])), ("b", torch.ones(2))])
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1 and "tensor a has elements that are infinite in float16" in lines[0]


class Adapted(torch.nn.Module):
    """A layer as PEFT's LoRA makes it."""

    adapter_layer_names = ("lora_A", "lora_B", "lora_embedding_A")

    def __init__(self):
        super().__init__()
        self.base_layer = torch.nn.Linear(4, 4)
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(4, 2, bias=False)})
        self.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, 4, bias=False)})
        self.lora_embedding_A = torch.nn.ParameterDict()

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Peft(torch.nn.Module):
    """base_model.model.model.proj, as in PeftModel."""

    def __init__(self):
        super().__init__()
        self.base_model = torch.nn.Module()
        self.base_model.model = torch.nn.Module()
        self.base_model.model.proj = Adapted()

    def forward(self, x):
        return self.base_model.model.proj(x)


def test_an_adapter_is_refused_at_the_registration_and_by_follow(tmp_path):
    name = r"tensor base_model.model.proj.lora_A.default.weight belongs to a PEFT adapter"
    endpoint = f"shm://{tmp_path}/e"
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match=name + ".*merge") as error:
            sender.register_model(Peft())
        assert error.value.code == "INVALID_ARGUMENT"
        with pytest.raises(bascule.BasculeError, match=name + ".*before PEFT wraps it"):
            hf.follow(Peft(), endpoint)
        trained, served = Peft(), torch.nn.Module()
        served.proj = torch.nn.Linear(4, 4)
        sender.register_model({bascule.hf_names(name): tensor for name, tensor in trained.named_parameters()
                               if ".lora_" not in name}, rename=None)
        with hf.follow(served, endpoint) as following:
            sender.wait_for_workers(1)
            assert sender.send().complete, following.error
            assert torch.equal(served.proj.weight, trained.base_model.model.proj.base_layer.weight)


def test_both_ends_may_have_the_same_adapter(tmp_path):
    trained, served = Peft(), Peft()
    with bascule.Sender(f"shm://{tmp_path}/e") as sender:
        sender.register_model(trained, rename=None)
        with hf.follow(served, f"shm://{tmp_path}/e", rename=None) as following:
            sender.wait_for_workers(1)
            assert sender.send().complete, following.error
            x = torch.randn(2, 4)
            assert torch.equal(served(x), trained(x))
