"""PyTorch modules: which tensors are sent, under which names, and which changes a send follows."""

import threading

import pytest
import torch

import bascule
from bascule.followed import Glance


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.square = torch.nn.Linear(6, 6)
        self.half = torch.nn.Linear(6, 3, dtype=torch.bfloat16)
        self.head = torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)


@pytest.fixture
def net():
    torch.manual_seed(3)
    return Net()


@pytest.fixture
def receiver(endpoint):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        yield receiver


def served(sender, receiver, *weights):
    sender.send_async(*weights)
    assert receiver.take() is not None
    copies = {name: tensor.clone() for name, tensor in receiver.weights().items()}
    receiver.finish()
    assert sender.wait_async().complete
    return copies


def assert_same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_parameters_and_persistent_buffers_travel_tied_ones_once(endpoint, net, receiver):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(net)
        sender.wait_for_workers(1)
        found = served(sender, receiver)
        assert_same(found, net.state_dict())
        weights = receiver.weights()
        assert weights["head.weight"].data_ptr() == weights["embed.weight"].data_ptr()
        assert not weights["head.weight"].requires_grad


def test_every_change_of_a_module_is_followed(endpoint, net, receiver):
    def step():
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(1)

    def replace():
        net.load_state_dict({name: torch.rand_like(tensor.float()).to(tensor.dtype)
                             for name, tensor in net.state_dict().items()}, assign=True)

    def turn():
        net.square.weight.data = net.square.weight.data.t()

    def move():
        net.square.weight.data = net.square.weight.data.clone()

    def strided():
        net.embed.weight.data = torch.randn(6, 11).t()

    with bascule.Sender(endpoint) as sender:
        sender.register_model(torch.nn.ModuleDict({"module": net}))
        sender.wait_for_workers(1)
        for change in (step, replace, turn, step, move, strided, step):
            change()
            if change in (replace, strided):
                net.head.weight = net.embed.weight
            assert_same(served(sender, receiver), net.state_dict()), change


def test_a_parameter_of_another_shape_or_untied_is_named(endpoint, net):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(net)
        weight = net.square.weight
        net.square.weight = torch.nn.Parameter(torch.zeros(6, 7))
        with pytest.raises(bascule.BasculeError, match=r"square.weight is F32 \[6, 7\] .*registered as F32 \[6, 6\]"):
            sender.send()
        net.square.weight = torch.nn.Parameter(weight.detach().double())
        with pytest.raises(bascule.BasculeError, match="square.weight is F64"):
            sender.send()
        net.square.weight = weight
        tied = net.head.weight
        net.head.weight = torch.nn.Parameter(torch.zeros(11, 6))
        with pytest.raises(bascule.BasculeError, match="registered as tied to"):
            sender.send()
        net.head.weight = tied
        assert sender.send().version == 1


def test_a_submodule_that_was_replaced_is_followed_and_another_one_named(endpoint, net, receiver):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(net)
        sender.wait_for_workers(1)
        served(sender, receiver)
        net.square = torch.nn.Linear(6, 6)
        assert_same(served(sender, receiver), net.state_dict())
        kept = net._modules.pop("half")
        with pytest.raises(bascule.BasculeError, match="tensor half.bias was registered and is no longer in the model"):
            sender.send()
        net._modules["half"], net.more = kept, torch.nn.Linear(2, 2)
        with pytest.raises(bascule.BasculeError, match="tensor more.bias is in the model and was not registered"):
            sender.send()
        net.more.bias, net.more.weight, bias = None, None, net.more.bias
        assert_same(served(sender, receiver), net.state_dict())
        net.more.bias = bias  # under a name that was there, without a tensor
        with pytest.raises(bascule.BasculeError, match="tensor more.bias is in the model and was not registered"):
            sender.send()
        del net.more
        assert_same(served(sender, receiver), net.state_dict())


@pytest.mark.parametrize("move", [lambda net: net.to(torch.float64), lambda net: net.load_state_dict(
    {name: tensor.clone() for name, tensor in net.state_dict().items()}, assign=True),
    lambda net: setattr(net.embed.weight, "data", net.embed.weight.data.view(6, 11))])  # at the same address
def test_an_engines_module_that_moved_is_named(move, endpoint, net):
    engine = Net()
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w", targets=engine) as receiver:
        sender.register_model(net)
        sender.wait_for_workers(1)
        sender.send_async()
        receiver.wait_ready(30, 1)
        receiver.commit()
        sender.wait_async()
        move(engine)
        sender.send_async()
        receiver.wait_ready(30, 2)
        with pytest.raises(bascule.BasculeError, match="was moved, replaced or changed since this receiver was made"):
            receiver.commit()


@pytest.mark.parametrize("by", ["DLPack's table", "torch's methods"])
@pytest.mark.parametrize("change, text", [
    (lambda t: t.resize_(2, 3), r"a is F32 \[2, 3\] on the host; it was registered as F32 \[4, 3\]"),
    (lambda t: setattr(t, "data", t.data[:3]), r"a is F32 \[3, 3\]"),
    (lambda t: setattr(t, "data", t.data.double()), "a is F64"),
    # The address stays, as after model.half() and model.bfloat16() if the allocator gives it out again.
    (lambda t: setattr(t, "data", t.data.view(torch.int32)), "a is I32"),
    (lambda t: setattr(t, "data", t.data.view(3, 4)), r"a is F32 \[3, 4\]"),
    (lambda t: setattr(t, "data", torch._neg_view(t.data)), "tensor a: its elements are negated"),
    (lambda t: setattr(t, "data", t.data.flatten()[:9].as_strided((4, 3), (1, 3))), ""),
    (lambda t: t.untyped_storage().resize_(0), "tensor a: its storage has 0 bytes, and its shape needs 48: it was freed"),
    (lambda t: t.as_strided_((4, 3), (1, 4)), ""),
    (lambda t: t.set_(torch.rand(20).untyped_storage(), 4, (4, 3), (3, 1)), ""),
])
def test_a_tensor_that_was_changed_in_place_is_refused_or_followed(change, text, by, endpoint, receiver, monkeypatch):
    if by != "DLPack's table":  # as with a torch before 2.10
        monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    assert (Glance([torch.rand(1)])._layouts is not None) == (by == "DLPack's table")
    tensor = torch.rand(4, 3)
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"a": tensor})
        sender.wait_for_workers(1)
        served(sender, receiver)
        change(tensor)
        if text:
            with pytest.raises(bascule.BasculeError, match=text):
                sender.send()
        else:
            assert_same(served(sender, receiver), {"a": tensor})


def test_a_view_that_negates_is_refused(endpoint):
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="tensor a: its elements are negated"):
            sender.register_model({"a": torch.ones(3, dtype=torch.complex64).conj().imag})


def test_what_says_not_where_its_elements_lie_is_named(endpoint):
    for tensor in (torch.nn.parameter.UninitializedParameter(),
                   torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), torch.ones(3, device="meta")):
        with bascule.Sender(endpoint) as sender:
            with pytest.raises(bascule.BasculeError, match="tensor a: ") as error:
                sender.register_model({"a": tensor})
            assert error.value.code == "INVALID_ARGUMENT"


def test_wrappers_leave_no_trace_in_names(endpoint, net, receiver):
    wrapped = torch.nn.Sequential()
    wrapped._modules = {"module": torch.nn.Sequential()}
    wrapped._modules["module"]._modules = {"_orig_mod": net}
    with bascule.Sender(endpoint) as sender:
        sender.register_model(wrapped)
        sender.wait_for_workers(1)
        assert_same(served(sender, receiver), net.state_dict())
        assert_same(served(sender, receiver, wrapped), net.state_dict())
    with bascule.Sender(endpoint + "2") as sender:
        with pytest.raises(bascule.BasculeError, match="would both be sent as same"):
            sender.register_model(net, rename=lambda name: "same")


def test_types_of_torch_are_cast_on_the_wire(endpoint, receiver):
    model = {str(dtype): torch.randn(5).to(dtype) for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2)}
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model, rename=None)
        sender.wait_for_workers(1)
        found = served(sender, receiver)
        assert {name: tensor.dtype for name, tensor in found.items()} == {
            name: tensor.dtype for name, tensor in model.items()}
        for name, tensor in model.items():
            assert torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8)), name
    wire = endpoint + "2?wire_dtype=bf16"
    with bascule.Sender(wire) as sender, bascule.Receiver(wire, worker="w") as other:
        sender.register_model({"a": torch.randn(7), "ids": torch.arange(3)})
        sender.wait_for_workers(1)
        found = served(sender, other)
        assert found["a"].dtype == torch.bfloat16 and found["ids"].dtype == torch.int64


def test_gathered_tensors_are_streamed_and_cast(endpoint, net, receiver):
    specs = [bascule.TensorSpec("_fsdp_wrapped_module." + name, tensor.dtype, tensor.shape)
             for name, tensor in net.state_dict().items()]
    with bascule.Sender(endpoint) as sender:
        sender.register_model(specs)
        sender.wait_for_workers(1)
        reports = []
        thread = threading.Thread(target=lambda: reports.append(sender.stream(
            (name, tensor.clone().float() if tensor.is_floating_point() else tensor.clone())
            for name, tensor in net.state_dict().items())))
        thread.start()
        assert receiver.take() == 1
        assert_same(receiver.weights(), net.state_dict())
        receiver.finish()
        thread.join()
        assert reports[0].complete


def test_arrays_of_numpy_are_streamed_beside_torch(endpoint, receiver):
    import numpy

    with bascule.Sender(endpoint) as sender:
        sender.register_model([bascule.TensorSpec("a", "float32", (4,))])
        sender.wait_for_workers(1)
        thread = threading.Thread(target=sender.stream, args=([("a", numpy.arange(4, dtype="f4")[::-1])],))
        thread.start()
        assert receiver.take() == 1
        assert receiver.weights()["a"].tolist() == [3, 2, 1, 0]
        receiver.finish()
        thread.join()


def test_an_engines_module_is_written(endpoint, net):
    torch.manual_seed(4)
    for apply in ("commit", "background"):
        place = f"{endpoint}-{apply}"
        engine = Net()
        with bascule.Sender(place) as sender, \
                bascule.Receiver(place, worker="w", targets=engine, apply=apply) as receiver:
            sender.register_model(net)
            sender.wait_for_workers(1)
            for version in range(1, 4):
                with torch.no_grad():
                    net.square.weight.mul_(-2)
                sender.send_async()
                receiver.wait_ready(30, version)
                assert receiver.commit().changed
                assert_same(receiver.weights() if apply == "background" else engine.state_dict(), net.state_dict())
                sender.wait_async()


@pytest.mark.parametrize(("options", "apply", "warned"), [
    ("", "background", True), ("?apply=background", None, True), ("?apply=background", "commit", False), ("", None, False)])
def test_a_module_of_two_sets_is_warned_about(options, apply, warned, endpoint, net, caplog):
    for targets in (net, dict(net.named_parameters())):
        caplog.clear()
        bascule.Receiver(endpoint + options, worker="w", targets=targets, apply=apply, partial=True).close()
        assert ("only every second version" in caplog.text) == (warned and targets is net)


@pytest.mark.parametrize("apply", ["commit", "background"])
def test_tensors_of_targets_outlive_module_and_receiver(apply, endpoint, net):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(net)
        receiver = bascule.Receiver(endpoint, worker="w", targets=Net(), apply=apply)
        sender.wait_for_workers(1)
        kept = []
        for version in range(1, 4):
            sender.send_async()
            receiver.wait_ready(30, version)
            receiver.commit()
            kept.append(receiver.weights())
            sender.wait_async()
        receiver.close()
        del receiver
        junk = [torch.rand(64) for _ in range(100)]
        for weights in kept:
            assert_same(weights, net.state_dict())
        assert junk


def test_a_dtensor_is_refused_with_what_to_do(endpoint):
    from torch import distributed
    from torch.distributed import tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        sharded = tensor.distribute_tensor(torch.zeros(4), distributed.init_device_mesh("cpu", (1,)))
        with bascule.Sender(endpoint) as sender:
            with pytest.raises(bascule.BasculeError, match="tensor a: a DTensor has only its shard here; .* or register specs"):
                sender.register_model({"a": sharded})
    finally:
        distributed.destroy_process_group()
