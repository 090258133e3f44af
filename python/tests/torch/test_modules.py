"""Modules that are sharded, or that hold more than parameters and buffers: what is refused, and the way out."""

import logging
import multiprocessing

import pytest
import torch

import bascule
from bascule import hf

PATIENCE = 60


class Codes(torch.nn.Module):
    """Has codes in its parameter, and their scale beside it; both are in state_dict()."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 8, dtype=torch.int8), requires_grad=False)
        self.scale = torch.tensor(0.5)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight.absmax"] = self.scale


class Extra(torch.nn.Linear):
    def __init__(self, state):
        super().__init__(8, 8)
        self.state = state

    def get_extra_state(self):
        return self.state


class Adds(torch.nn.Linear):
    """A hook adds `state` to its state_dict()."""

    def __init__(self, state):
        super().__init__(8, 8)
        self._register_state_dict_hook(lambda module, found, prefix, _: found.update({prefix + "gain": state}))


def quantised():
    return torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)),
                                                  {torch.nn.Linear}, torch.qint8)


MORE = {
    "packed": (quantised, r"0\.scale, 0\.zero_point, 0\._packed_params\.dtype and 1 more"),
    "scales": (lambda: torch.nn.Sequential(Codes()), r"0\.weight\.absmax"),
    "extra state": (lambda: torch.nn.Sequential(Extra({"gain": 2})), r"0\._extra_state"),
    "an extra tensor": (lambda: torch.nn.Sequential(Extra(torch.ones(1))), r"0\._extra_state"),
    "a hook's": (lambda: torch.nn.Sequential(Adds(torch.ones(1))), r"0\.gain"),
}
NO_MORE = {
    "no extra state": lambda: Extra(None),
    "empty extra state": lambda: Extra(torch.empty(0, dtype=torch.uint8)),
    "another name of a parameter": lambda: Aliased(),
    "wrapped": lambda: torch.nn.ModuleDict({"module": torch.nn.Sequential(Extra(None))}),
    "checkpointed": lambda: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper(torch.nn.Linear(8, 8)),
}


class Aliased(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self._register_state_dict_hook(
            lambda module, found, prefix, _: found.update({prefix + "old_name": module.weight.detach()}))


@pytest.mark.parametrize("what", MORE)
@pytest.mark.filterwarnings("ignore")
def test_state_that_would_not_be_sent_is_refused_by_name(what, endpoint):
    make, names = MORE[what]
    model = make()
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match=rf"state_dict\(\) of the model has {names}, neither") as error:
            sender.register_model(model)
        assert error.value.code == "INVALID_ARGUMENT" and "dict(model.named_parameters())" in str(error.value)
        sender.register_model(dict(model.named_parameters()))  # the way out
        with pytest.raises(bascule.BasculeError, match=names):
            sender.send(model)
        sender.send()


@pytest.mark.parametrize("what", MORE)
@pytest.mark.filterwarnings("ignore")
def test_state_that_versions_would_not_change_in_an_engine_is_logged_by_name(what, endpoint, caplog):
    make, names = MORE[what]
    for join in (lambda: hf.follow(make(), endpoint), lambda: bascule.Receiver(endpoint, worker="w", targets=make())):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "bascule"), join():
            pass
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert caplog.records[0].getMessage().startswith("state_dict() of the model has 0.")


@pytest.mark.parametrize("what", NO_MORE)
def test_a_module_without_other_state_is_sent_and_followed_without_a_word(what, endpoint, caplog):
    import torch.distributed.algorithms._checkpoint.checkpoint_wrapper  # noqa: F401

    with bascule.Sender(endpoint) as sender, hf.follow(NO_MORE[what](), endpoint) as following:
        sender.register_model(NO_MORE[what]())
        sender.wait_for_workers(1)
        sender.send()
        assert following.wait() == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_state_that_comes_with_a_replaced_submodule_is_refused(endpoint):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        model[0] = Extra({"gain": 2})
        with pytest.raises(bascule.BasculeError, match=r"has 0\._extra_state, neither"):
            sender.send()


def test_a_state_dict_that_fails_is_reported(endpoint):
    class Broken(torch.nn.Linear):
        def get_extra_state(self):
            raise OSError("no scales")

    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match=r"state_dict\(\) of the model fails.*OSError: no scales"):
            sender.register_model(Broken(2, 2))


def _rank(rank, store, endpoint, answers):
    from torch import distributed
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    cpu = torch.device("cpu")

    def text_of(call):
        try:
            call()
            return "accepted"
        except bascule.BasculeError as error:
            return str(error)

    def refused(what, model):
        with bascule.Sender(f"{endpoint}-{rank}-{what}") as sender:
            for register in (lambda: sender.register_model(model), lambda: sender.register_model(dict(model.named_parameters()))):
                yield text_of(register)

    def all_ways():
        for original in (False, True):
            torch.manual_seed(1)
            model = torch.nn.Sequential(FullyShardedDataParallel(torch.nn.Linear(16, 33), device_id=cpu, use_orig_params=original),
                                        torch.nn.Linear(33, 2))
            yield from refused(f"fsdp1-{original}", model)
            yield from refused(f"part-{original}", model[0].module)
            with bascule.Sender(f"{endpoint}-{rank}-gathered-{original}") as sender:
                with FullyShardedDataParallel.summon_full_params(model):
                    yield text_of(lambda: sender.register_model(model))
                    registered = text_of(lambda: sender.register_model(dict(model.named_parameters())))
                yield text_of(sender.send) if registered == "accepted" else registered
        torch.manual_seed(1)
        model = torch.nn.Sequential(FullyShardedDataParallel(torch.nn.Linear(16, 33), device_id=cpu), torch.nn.Linear(33, 2))
        with FullyShardedDataParallel.summon_full_params(model):  # the way out, as in the guide
            specs = [bascule.TensorSpec(name, each.dtype, each.shape) for name, each in model.named_parameters()]
            if rank == 0:
                with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="w") as receiver:
                    sender.register_model(specs)
                    sender.stream(model.named_parameters())
                    receiver.wait_ready(30)
                    receiver.commit()
                    torch.manual_seed(1)
                    whole = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Linear(33, 2)).state_dict()
                    yield all(torch.equal(receiver.weights()[name], tensor) for name, tensor in whole.items())
        distributed.barrier()
        model = fully_shard(torch.nn.Linear(16, 33), mesh=torch.distributed.init_device_mesh("cpu", (2,)), reshard_after_forward=False)
        yield from refused("fsdp2", model)
        model.unshard()
        yield from list(refused("unsharded", model))[:1]

    answers.put((rank, list(all_ways())))
    distributed.barrier()
    distributed.destroy_process_group()


def test_sharded_modules_are_refused_by_name_and_gathered_ones_are_streamed(endpoint, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    ranks = [spawn.Process(target=_rank, args=(rank, tmp_path / "store", endpoint, answers)) for rank in range(2)]
    for process in ranks:
        process.start()
    answer = dict(answers.get(timeout=PATIENCE) for _ in ranks)
    for process in ranks:
        process.join(PATIENCE)
        assert process.exitcode == 0
    for rank in range(2):
        texts = [text for text in answer[rank] if text is not True]
        assert (True in answer[rank]) == (rank == 0)
        wrong = [text for text in texts if "register specs of the whole tensors" not in text and "it was freed, as sharding" not in text]
        assert not wrong and len(texts) == 15, texts
        assert texts[0].startswith("part 0: FullyShardedDataParallel keeps this rank's shards")
        assert "tensor 0._flat_param: FullyShardedDataParallel keeps this rank's shard of it" in texts[1].replace(
            "_fsdp_wrapped_module.", "")


@pytest.mark.parametrize("shape", [(0,), (4, 3)], ids=["partitioned", "gathered"])
def test_what_zero3_partitions_is_refused_whether_it_is_gathered_or_not(shape, endpoint):
    model = torch.nn.Linear(3, 4)
    model.weight = torch.nn.Parameter(torch.empty(shape))
    model.weight.ds_id, model.weight.ds_shape = 0, torch.Size([4, 3])  # as DeepSpeed marks it
    with bascule.Sender(endpoint) as sender:
        for each in (model, dict(model.named_parameters())):
            with pytest.raises(bascule.BasculeError, match="tensor weight: .*ZeRO-3.*register specs of the whole tensors"):
                sender.register_model(each)
