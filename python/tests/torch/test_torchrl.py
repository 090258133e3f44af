"""The double buffer's API, with an engine in a separate process, and with TensorDicts if TorchRL is installed."""

import multiprocessing

import pytest
import torch

import bascule
from bascule.torchrl import SyncScheme

PATIENCE = 60


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 3)
        self.b = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


class Loader:
    """Like vLLM's models, it has load_weights(), which copies each tensor before it takes the next."""

    def __init__(self):
        self.loaded, self.resets = {}, 0

    def load_weights(self, pairs):
        for name, tensor in pairs:
            if self.resets == 2:
                raise ValueError(f"no room for {name}")
            self.loaded[name] = tensor.clone()

    def reset_prefix_cache(self):
        self.resets += 1
        return True


def _engine(endpoint, kind, versions, answers):
    engine = Loader() if kind == "loader" else Net()
    receiver = SyncScheme(endpoint).create_receiver(engine, worker="engine")
    for _ in range(versions):
        assert receiver.poll_and_apply(timeout=PATIENCE)
        loaded = engine.loaded if kind == "loader" else engine.state_dict()
        answers.put({name: tensor.float().sum().item() for name, tensor in loaded.items()})
    assert not receiver.poll_and_apply(timeout=0.1)
    answers.put(getattr(engine, "resets", None))
    receiver.close()


def sums(model):
    return {name: tensor.float().sum().item() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("kind, resets", [("loader", 2), ("module", None)])
def test_each_update_is_loaded_by_the_engine(endpoint, kind, resets):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=_engine, args=(endpoint, kind, 2, answers))
    process.start()
    model = Net()
    sender = SyncScheme(endpoint).create_sender()
    with pytest.raises(RuntimeError, match="Transport not initialized. Call register_model first."):
        sender.update_weights()
    sender.register_model(model)
    for _ in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        sender.update_weights()
        assert answers.get(timeout=PATIENCE) == sums(model)
    assert answers.get(timeout=PATIENCE) == resets
    process.join(PATIENCE)
    sender.close()


def test_an_engine_that_cannot_load_is_told_to_the_trainer(endpoint):
    engine = Loader()
    sender = SyncScheme(endpoint).create_sender()
    sender.register_model(Net())
    receiver = SyncScheme(endpoint).create_receiver(engine)
    sender.update_weights()
    assert receiver.poll_and_apply(timeout=PATIENCE)
    engine.resets = 2
    sender.update_weights()
    with pytest.raises(ValueError, match="no room for a.bias"):
        receiver.poll_and_apply(timeout=PATIENCE)
    sender.sender.send_async()
    updates = sender.sender.wait_async(PATIENCE).updates
    assert "no room for a.bias" in str([worker.error for update in updates for worker in update.workers])
    receiver.close()
    sender.close()


def test_an_engine_of_another_shape_names_the_tensor(endpoint):
    sender = SyncScheme(endpoint).create_sender()
    sender.register_model({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)})
    receiver = SyncScheme(endpoint).create_receiver(torch.nn.Linear(5, 3))
    sender.update_weights()
    with pytest.raises(bascule.BasculeError, match=r"tensor weight has the shape \[3, 4\]; the engine's has \[3, 5\]"):
        receiver.poll_and_apply(timeout=PATIENCE)
    with pytest.raises(ValueError, match="out of place"):
        receiver.apply_weights({}, inplace=False)
    receiver.close()
    sender.close()


@pytest.mark.parametrize("change, text", [
    ({"bias": torch.zeros(2)}, r"tensor bias has the shape \[2\]; the engine's has \[3\]"),
    ({"bias": torch.full((3,), 7)}, "tensor bias is torch.int64; the engine's is torch.float32"),
    ({"steps": torch.tensor(1.7)}, "tensor steps is torch.float32; the engine's is torch.int64"),
    ({"head": torch.zeros(2)}, "tensor head is among the weights, and the engine has none of this name"),
    ({"bias": None}, "the engine's tensor bias is not among the weights")])
def test_a_module_stays_as_it_was_if_one_tensor_does_not_fit(change, text, endpoint):
    engine = torch.nn.Linear(4, 3)
    engine.register_buffer("steps", torch.tensor(0))
    before = {name: tensor.clone() for name, tensor in engine.state_dict().items()}
    weights = {"weight": torch.ones(3, 4, dtype=torch.bfloat16), "bias": torch.ones(3), "steps": torch.tensor(5)}
    receiver = SyncScheme(endpoint).create_receiver(engine)
    with pytest.raises(bascule.BasculeError, match=text):
        receiver.apply_weights({name: tensor for name, tensor in {**weights, **change}.items() if tensor is not None})
    assert all(torch.equal(before[name], tensor) for name, tensor in engine.state_dict().items())
    engine.register_buffer("scratch", torch.zeros(2), persistent=False)
    receiver.apply_weights({**weights, "scratch": torch.ones(2)})  # as TensorDict.from_module() has it
    assert engine.scratch.sum() == 0
    assert engine.weight.sum() == 12 and engine.steps == 5
    receiver.close()


def test_a_tied_tensor_of_a_module_gets_one_tensor(endpoint):
    engine = torch.nn.ModuleDict({"embed": torch.nn.Embedding(3, 2), "head": torch.nn.Linear(2, 3, bias=False)})
    engine["head"].weight = engine["embed"].weight
    receiver = SyncScheme(endpoint).create_receiver(engine)
    receiver.apply_weights({"embed.weight": torch.ones(3, 2), "head.weight": torch.ones(3, 2)})
    with pytest.raises(bascule.BasculeError, match="tensors embed.weight and head.weight are one tensor"):
        receiver.apply_weights({"embed.weight": torch.ones(3, 2), "head.weight": torch.zeros(3, 2)})
    assert engine["head"].weight.sum() == 6
    receiver.close()


class LoadsLater:
    async def load_weights(self, pairs):
        list(pairs)


class LoadsAsDrawn:
    def load_weights(self, pairs):
        yield from pairs


class LoadsAPart:
    def load_weights(self, pairs):
        next(pairs)


class ResetsLater:
    def load_weights(self, pairs):
        list(pairs)

    async def reset_prefix_cache(self):
        pass


class CannotReset(ResetsLater):
    def reset_prefix_cache(self):
        return {"todo": True}


@pytest.mark.parametrize("engine, text", [
    (LoadsLater, r"load_weights\(\) of LoadsLater returns a coroutine"),
    (LoadsAsDrawn, r"load_weights\(\) of LoadsAsDrawn returns a generator"),
    (LoadsAPart, "before it had read 3 of 4 tensors"),
    (ResetsLater, r"reset_prefix_cache\(\) of ResetsLater returns a coroutine"),
    (CannotReset, "answered {'todo': True}")])
@pytest.mark.filterwarnings("error")
def test_an_engine_that_has_not_done_its_work_acknowledges_nothing(engine, text, endpoint):
    scheme = SyncScheme(endpoint)
    sender, receiver = scheme.create_sender(), scheme.create_receiver(engine())
    sender.register_model({name: torch.ones(2) for name in "abcd"})
    sender.update_weights()
    with pytest.raises(bascule.BasculeError, match=text):
        receiver.poll_and_apply(timeout=PATIENCE)
    assert receiver.receiver.status().state != "serving"
    receiver.close()
    sender.close()


def test_tensordicts_of_torchrl_travel_by_dotted_names(endpoint):
    tensordict = pytest.importorskip("tensordict")
    model = Net()
    sender = SyncScheme(endpoint).create_sender()
    sender.register_model(model)
    engine = Loader()
    receiver = SyncScheme(endpoint).create_receiver(engine)
    with torch.no_grad():
        model.a.weight.add_(1)
    sender.update_weights(tensordict.TensorDict.from_module(model).data.clone())
    assert receiver.poll_and_apply(timeout=PATIENCE)
    assert {name: tensor.float().sum().item() for name, tensor in engine.loaded.items()} == sums(model)
    receiver.close()
    sender.close()
