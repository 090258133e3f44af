"""Random adapters: their number, ranks, shapes, scales and types. Each test's seed is in its name."""

import contextlib
import random

import peft
import pytest
import torch
from adapted import train
from peft.tuners.lora import LoraLayer

import bascule
import bascule.peft

COUNTS = [1, 2, 5, 17, 64]
VERSIONS = 3


class Net(torch.nn.Module):
    """Modules of random shapes, each with its own input."""

    def __init__(self, chance):
        super().__init__()
        self.layers = torch.nn.ModuleDict()
        self.inputs = {}
        for i in range(chance.randint(1, 4)):
            rows, columns = (chance.choice([1, 2, 3, 16, 31, 32, 33, 64, chance.randint(1, 100)]) for _ in range(2))
            if chance.random() < 0.25:
                self.layers[f"l{i}"] = torch.nn.Embedding(columns, rows)
                self.inputs[f"l{i}"] = torch.arange(columns)
            else:
                self.layers[f"l{i}"] = torch.nn.Linear(columns, rows, bias=chance.random() < 0.5)
                self.inputs[f"l{i}"] = torch.randn(3, columns)

    def forward(self):
        return [layer(self.inputs[name]) for name, layer in self.layers.items()]


def a_rank(chance):
    return chance.choice([1, 2, 3, 8, 15, 64, 255, 256, chance.randint(1, 256)])


def made(seed):
    """A trained and a served model with the same base and other scales, by the same seed."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    base = Net(chance)
    names = list(base.layers)
    targets = [name for name in names if chance.random() < 0.7] or names[:1]
    ranks = {name: a_rank(chance) for name in targets if chance.random() < 0.5}
    same = {"target_modules": targets, "r": a_rank(chance), "rank_pattern": ranks}
    alphas = {name: chance.uniform(0.1, 64) for name in targets if chance.random() < 0.5}
    scale = {"lora_alpha": chance.choice([1, 16, chance.uniform(0.1, 300)]), "use_rslora": chance.random() < 0.5}
    models = []
    for config in (peft.LoraConfig(**same, **scale, alpha_pattern=alphas), peft.LoraConfig(**same)):
        torch.manual_seed(seed)
        again = Net(random.Random(seed))
        again.load_state_dict(base.state_dict())
        again.inputs = base.inputs
        models.append(peft.get_peft_model(again, config).eval())
    dtype = chance.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    return *models, dtype


def in_type(model, dtype):
    """The adapter's factors as a trainer of this type has them."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            for kind in ("lora_A", "lora_B"):
                getattr(module, kind).to(dtype)
            for kind in ("lora_embedding_A", "lora_embedding_B"):
                for parameter in getattr(module, kind).values():
                    parameter.data = parameter.data.to(dtype)


def assert_follows(served, trained, dtype):
    """Bit for bit what PEFT's scale and one rounding make of the trainer's factors, and so the trainer's results."""
    mine, theirs = (dict(model.named_modules()) for model in (served, trained))
    adapted = [name for name, module in theirs.items() if isinstance(module, LoraLayer)]
    assert adapted
    for name in adapted:
        for kind in ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B"):
            for one, other in zip(getattr(mine[name], kind).parameters(), getattr(theirs[name], kind).parameters()):
                scale = torch.tensor(theirs[name].scaling["default"] if "B" in kind[-1] else 1.0, dtype=torch.float32)
                assert torch.equal(one, (other.float() * scale).to(dtype).float()), (name, kind)
    if dtype == torch.float32:
        with torch.no_grad():
            for one, other in zip(served(), trained()):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def factors(layer):
    """B and A in f64, as their product has the weight's shape."""
    if "default" in layer.lora_embedding_A:
        return layer.lora_embedding_A["default"].t().double(), layer.lora_embedding_B["default"].t().double()
    return layer.lora_B["default"].weight.double(), layer.lora_A["default"].weight.double()


@pytest.mark.parametrize("seed, count", list(enumerate(COUNTS)))
def test_each_version_of_each_adapter_arrives(tmp_path, seed, count):
    with contextlib.ExitStack() as ends:
        adapters = []
        for i in range(count):
            trained, served, dtype = made(1000 * seed + i)
            endpoint = f"shm://{tmp_path}/{i}"
            in_type(trained, dtype)
            sender = ends.enter_context(bascule.Sender(endpoint, threads=1))
            following = ends.enter_context(bascule.peft.follow(served, endpoint))
            sender.register_adapter(trained)
            adapters.append((trained, served, dtype, sender, following))
        for version in range(1, VERSIONS + 1):
            for i, (trained, _, _, sender, _) in enumerate(adapters):
                sender.wait_for_workers(1)
                train(trained, 10_000 * version + i)
                sender.send_async()
            for trained, served, dtype, sender, following in adapters:
                assert sender.wait_async().complete, following.error
                with following.held() as held:
                    assert held == version
                    assert_follows(served, trained, dtype)


@pytest.mark.parametrize("seed", range(12))
def test_a_merged_weight_is_the_exact_sum_but_for_rounding(endpoint, seed):
    model, _, _ = made(7000 + seed)
    dtype = (torch.float32, torch.bfloat16, torch.float16)[seed % 3]
    for layer in model.base_model.model.layers.values():
        base = getattr(layer, "base_layer", layer)
        base.to(dtype)
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        sender.register_model(model, adapters="merge")
        sender.wait_for_workers(1)
        for version in range(1, VERSIONS + 1):
            train(model, version)
            sender.send_async()
            receiver.wait_ready(version=version)
            receiver.commit()
            assert sender.wait_async().complete
            sent = receiver.weights()
            for name, layer in model.base_model.model.layers.items():
                weight = getattr(layer, "base_layer", layer).weight.double()
                terms = weight.abs()
                if isinstance(layer, LoraLayer):
                    b, a = factors(layer)
                    weight = weight + b @ a * layer.scaling["default"]
                    terms = terms + b.abs() @ a.abs() * layer.scaling["default"]
                # One rounding to the type, and at most 257 sums in f32.
                bound = weight.abs() * torch.finfo(dtype).eps + 300 * 2.0**-24 * terms + 1e-7
                assert ((sent[f"layers.{name}.weight"].double() - weight).abs() <= bound).all(), name
