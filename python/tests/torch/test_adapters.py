"""register_adapter(): which tensors are sent under which names, their scale, and what is refused."""

import dataclasses
import json
import subprocess
import sys

import peft
import pytest
import safetensors.torch
import torch
from adapted import QKV, adapted, gpt2, logits, qwen, send_once, sent_by, train
from peft.tuners.lora import LoraLayer

import bascule
import bascule.peft
from bascule import checkpoint
from bascule.lora_config import KEYS, describe_adapter
from bascule.peft import adapter_of

CONFIGS = {
    "qkv": {},
    "all-linear": {"target_modules": "all-linear"},
    "rslora": {"use_rslora": True, "lora_alpha": 7},
    "patterns": {"rank_pattern": {"q_proj": 2, "layers.1.self_attn.v_proj": 8}, "alpha_pattern": {"k_proj": 5}},
    "rslora and patterns": {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {".*v_proj": 3}},
    "embeddings": {"target_modules": [*QKV, "embed_tokens"]},
    "modules to save": {"modules_to_save": ["lm_head"]},
    "modules to save by the end of their names": {"modules_to_save": ["norm"]},
    "a regular expression": {"target_modules": r".*\.1\..*\.(q|o)_proj"},
    "some layers": {"target_modules": [*QKV, "up_proj"], "layers_to_transform": [1], "layers_pattern": "layers",
                    "exclude_modules": ["q_proj"]},
}


def test_every_key_of_the_installed_config_is_in_the_table_with_its_default():
    fields = {field.name: field for field in dataclasses.fields(peft.LoraConfig)}
    assert fields.keys() == KEYS.keys()
    config = peft.LoraConfig()
    for name, key in KEYS.items():
        if name not in ("runtime_config", "peft_version", "peft_type"):
            assert getattr(config, name) == key.default, name


def test_another_kind_of_adapter_is_refused_by_name(endpoint):
    model = peft.get_peft_model(qwen(), peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]))
    with bascule.Sender(endpoint) as sender, pytest.raises(bascule.BasculeError, match="peft_type LORA, found 'IA3'"):
        sender.register_adapter(model)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_any_reader_of_the_files_computes_what_the_trainer_computes(endpoint, tmp_path, config):
    """PEFT itself reads what was sent, with the description as adapter_config.json."""
    model = adapted(**config)
    expected = logits(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    files = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    assert sent.keys() == files.keys()
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "adapter_config.json").write_text(adapter_of(model).description)
    safetensors.torch.save_file(sent, tmp_path / "read" / "adapter_model.safetensors")
    again = peft.PeftModel.from_pretrained(qwen(), tmp_path / "read").eval()
    assert {layer.scaling["default"] for layer in again.modules() if isinstance(layer, LoraLayer)} == {1.0}
    torch.testing.assert_close(logits(again), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits(again), logits(qwen()), atol=1e-2)  # the adapter is no no-op


def test_an_engine_may_refuse_an_adapter_for_its_config(endpoint):
    seen = []

    def accept(tensors, description):
        seen.append({tensor.name: tensor.shape for tensor in tensors})
        if (rank := json.loads(description)["r"]) > 2:
            raise ValueError(f"expected rank 2 at most, found {rank}")

    with bascule.Receiver(endpoint, worker="engine", accept=accept), bascule.Sender(endpoint) as sender:
        sender.register_adapter(model := adapted())
        sender.wait_for_workers(1)
        assert "ValueError: expected rank 2 at most, found 4" in sender.send().why_incomplete
    assert seen == [{name: tuple(tensor.shape) for name, tensor in peft.get_peft_model_state_dict(model).items()}]


def test_each_b_is_scaled_in_f32_and_rounded_once(endpoint):
    model = adapted(qwen(dtype=torch.bfloat16), use_rslora=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16()
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model))
    for name, tensor in peft.get_peft_model_state_dict(model).items():
        scale = torch.tensor(6.0) if "lora_B" in name else torch.tensor(1.0)  # 12 / √4
        assert torch.equal(sent[name], (tensor.float() * scale).bfloat16()), name


def test_one_of_several_adapters_is_sent(endpoint):
    model = adapted()
    model.add_adapter("math", peft.LoraConfig(r=2, lora_alpha=3, target_modules=["o_proj"]))
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model, "math"))
    assert len(sent) == 4 and all("o_proj" in name and "math" not in name for name in sent)
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="'maths': the model has 'default', 'math'"):
            sender.register_adapter(model, "maths")
        with pytest.raises(bascule.BasculeError, match="expected a model with PEFT's adapters, found Qwen2ForCausalLM"):
            sender.register_adapter(qwen())


def test_an_adapter_that_changed_the_base_refuses_others_of_the_model(endpoint):
    model = adapted()
    model.add_adapter("math", peft.LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights="olora"))
    with bascule.Sender(endpoint) as sender, pytest.raises(bascule.BasculeError, match="'math' of the same model.*'olora'"):
        sender.register_adapter(model)


def test_modules_in_a_module_that_another_adapter_replaces_are_refused_by_name(endpoint):
    """PEFT adapts each of its copies, so the names are not the base model's."""
    model = adapted(target_modules=["q_proj"], modules_to_save=["mlp"])
    model.add_adapter("math", peft.LoraConfig(r=2, target_modules=["up_proj"]))
    model.set_adapter("math")
    with bascule.Sender(endpoint) as sender:
        for register in (lambda: sender.register_adapter(model, "math"),
                         lambda: sender.register_model(model, adapters="merge")):
            with pytest.raises(bascule.BasculeError, match="mlp.*up_proj: it is adapted in a module that modules_to_save"):
                register()
        sender.register_adapter(model)


def test_a_compiled_or_wrapped_model_has_the_same_names():
    model = adapted()
    names = adapter_of(model).places.keys()
    assert adapter_of(torch.compile(model)).places.keys() == names
    assert adapter_of(Parallel(model)).places.keys() == names


class Parallel(torch.nn.Module):
    """As DistributedDataParallel wraps a model."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_wrappers_of_the_base_model_do_not_change_what_the_description_calls_it():
    """Engines refuse an adapter for another class."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    model = adapted()
    description = adapter_of(model).description
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=QKV)
    compiled = peft.get_peft_model(torch.compile(qwen()), config)
    assert json.loads(adapter_of(compiled).description)["auto_mapping"] == json.loads(description)["auto_mapping"]
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        adapters = {parameter for name, parameter in model.named_parameters() if "lora_" in name}
        fully_shard(model.base_model.model, mesh=init_device_mesh("cpu", (1,)), ignored_params=adapters)
        assert type(model.get_base_model()).__name__ == "FSDPQwen2ForCausalLM"
        assert adapter_of(model).description == description
    finally:
        torch.distributed.destroy_process_group()


def test_adapters_without_a_peft_model_around_them_have_peft_s_names():
    """As transformers' own add_adapter() makes them."""
    model = peft.inject_adapter_in_model(peft.LoraConfig(target_modules=QKV), qwen())
    assert adapter_of(model).places.keys() == adapter_of(adapted()).places.keys()


def test_later_sends_have_what_was_trained_moved_or_replaced(endpoint):
    model = adapted(use_rslora=True)
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        sender.register_adapter(model)
        for seed in range(3):
            train(model, seed)
            if seed == 1:
                for parameter in model.parameters():
                    parameter.data = parameter.data.clone()
            elif seed == 2:
                layer = model.base_model.model.model.layers[0].self_attn.q_proj.lora_B["default"]
                layer.weight = torch.nn.Parameter(layer.weight.detach() + 1)
            sent = send_once(sender, receiver)
            for name, tensor in peft.get_peft_model_state_dict(model).items():
                assert torch.equal(sent[name], tensor * 6 if "lora_B" in name else tensor), name


def test_what_would_be_sent_with_a_wrong_scale_is_refused(endpoint):
    model = adapted()
    with bascule.Sender(endpoint, expect_workers=0) as sender:
        sender.register_adapter(model)
        sender.send()
        for call in (lambda: sender.send(dict(peft.get_peft_model_state_dict(model))), lambda: sender.stream([])):
            with pytest.raises(bascule.BasculeError, match="without its scale"):
                call()
        layer = model.base_model.model.model.layers[0].self_attn.q_proj
        layer.scale_layer(2)
        with pytest.raises(bascule.BasculeError, match=r"layers.0.self_attn.q_proj scales its adapter by 6.0; .* 3.0"):
            sender.send()
        layer.unscale_layer(2)
        assert sender.send().version == 2
        model.delete_adapter("default")
        with pytest.raises(bascule.BasculeError, match="default"):
            sender.send()


def test_single_copy_endpoints_and_a_missing_choice_are_refused(endpoint):
    model = adapted(lora_alpha=4)  # a scale of 1
    for register in (lambda sender: sender.register_adapter(model),
                     lambda sender: sender.register_model(model, adapters="merge")):
        with bascule.Sender(endpoint + "?slots=1") as sender, pytest.raises(bascule.BasculeError, match="slots=1.*use slots=2"):
            register(sender)
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match=r'adapters="merge".*register_adapter\(\)'):
            sender.register_model(model)
        with pytest.raises(bascule.BasculeError, match='expected None or "merge", found True'):
            sender.register_model(model, adapters=True)


def test_a_sharded_adapter_is_refused_with_a_hint(endpoint):
    from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

    model = adapted()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        layer = model.base_model.model.model.layers[1].self_attn.v_proj.lora_B["default"]
        mesh = init_device_mesh("cpu", (1,))
        layer.weight = torch.nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Replicate()]))
        with bascule.Sender(endpoint) as sender:
            for register in (lambda: sender.register_adapter(model), lambda: sender.register_model(model, adapters="merge")):
                with pytest.raises(bascule.BasculeError, match="v_proj.lora_B.* is sharded .DTensor.*ignored_params"):
                    register()
    finally:
        torch.distributed.destroy_process_group()


def test_a_plain_copy_of_a_sharded_adapter_is_sent(endpoint):
    """As docs/guide/adapters.md shows it: the copy's base weights have no memory."""
    model = adapted(use_rslora=True)
    with torch.device("meta"):
        copy = peft.get_peft_model(qwen(), model.peft_config["default"])
    trained = dict(model.named_parameters())
    for name, parameter in list(copy.named_parameters()):
        if "lora_" in name:
            owner, _, key = name.rpartition(".")
            setattr(copy.get_submodule(owner), key, torch.nn.Parameter(torch.empty_like(parameter, device="cpu")))
            copy.get_parameter(name).data.copy_(trained[name])
    plain = sent_by(endpoint, lambda sender: sender.register_adapter(model))
    copied = sent_by(endpoint, lambda sender: sender.register_adapter(copy))
    assert plain.keys() == copied.keys() and all(torch.equal(plain[name], copied[name]) for name in plain)


def test_layers_that_are_no_matrices_are_refused_by_name(endpoint):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 2)

    model = peft.get_peft_model(Net(), peft.LoraConfig(target_modules=["conv"]))
    with bascule.Sender(endpoint) as sender:
        for register in (lambda: sender.register_adapter(model), lambda: sender.register_model(model, adapters="merge")):
            with pytest.raises(bascule.BasculeError, match="module base_model.model.conv: .*Conv2d"):
                register()


def q_proj(model):
    return model.base_model.model.model.layers[0].self_attn.q_proj


@pytest.mark.parametrize("kind", ["lora_A", "lora_B"])
def test_a_bias_of_a_factor_is_refused_by_name(endpoint, kind):
    """As lora_bias=True makes it, in a model whose config does not say so."""
    model = adapted()
    factor = getattr(q_proj(model), kind)["default"]
    factor.bias = torch.nn.Parameter(torch.ones(len(factor.weight)))
    with bascule.Sender(endpoint) as sender:
        for register in (lambda: sender.register_adapter(model), lambda: sender.register_model(model, adapters="merge"),
                         lambda: bascule.peft.follow(model, endpoint)):
            with pytest.raises(bascule.BasculeError, match=f"layers.0.self_attn.q_proj: its adapter has {kind}.bias beside"):
                register()
        factor.bias = None
        sender.register_adapter(model)


@pytest.mark.parametrize("kind", ["lora_A", "lora_B"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64])
def test_factors_that_are_no_floating_point_numbers_are_refused_by_name(endpoint, kind, dtype):
    model = adapted()
    factor = getattr(q_proj(model), kind)["default"]
    factor.weight = torch.nn.Parameter(factor.weight.detach().to(dtype), requires_grad=False)
    with bascule.Sender(endpoint) as sender:
        for register in (lambda: sender.register_adapter(model), lambda: sender.register_model(model, adapters="merge")):
            with pytest.raises(bascule.BasculeError, match=f"q_proj: {kind[-1]} of its adapter is {str(dtype)[6:]}; expected fl"):
                register()


@pytest.mark.parametrize("change, text", [
    (lambda a, b: (a[:0], b[:, :0]), r"q_proj: A of its adapter has the shape \[0, 32\]; expected a whole matrix"),
    (lambda a, b: (a.to("meta"), b), "q_proj.lora_A.*it is on the device meta")], ids=["rank 0", "meta"])
def test_factors_without_elements_are_refused_by_name(endpoint, change, text):
    model = adapted()
    factors = [getattr(q_proj(model), kind)["default"] for kind in ("lora_A", "lora_B")]
    for factor, changed in zip(factors, change(*(each.weight.detach() for each in factors))):
        factor.weight = torch.nn.Parameter(changed)
    with bascule.Sender(endpoint) as sender:
        for register in (lambda: sender.register_adapter(model), lambda: sender.register_model(model, adapters="merge")):
            with pytest.raises(bascule.BasculeError, match=text):
                register()


@torch.no_grad()
def test_factors_of_other_types_and_strides_are_sent_as_they_are(endpoint):
    model = adapted(lora_alpha=8)  # a scale of 2
    a, b = (getattr(q_proj(model), kind)["default"] for kind in ("lora_A", "lora_B"))
    a.weight, b.weight = (torch.nn.Parameter(each) for each in (a.weight.bfloat16(), b.weight.t().contiguous().t()))
    assert not b.weight.is_contiguous()
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model))
    name = "base_model.model.model.layers.0.self_attn.q_proj.{}.weight"
    assert torch.equal(sent[name.format("lora_A")], a.weight) and torch.equal(sent[name.format("lora_B")], 2 * b.weight)
    before = q_proj(model).base_layer.weight.clone()
    merged = sent_by(endpoint, lambda sender: sender.register_model(model, adapters="merge"))
    torch.testing.assert_close(merged["model.layers.0.self_attn.q_proj.weight"], before + 2 * b.weight @ a.weight.float())


def test_two_modules_that_would_get_one_name_are_refused(endpoint):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self._orig_mod = torch.nn.Linear(8, 8), torch.nn.ModuleDict({"q": torch.nn.Linear(8, 8)})

    model = peft.get_peft_model(Net(), peft.LoraConfig(target_modules=["q"]))
    with bascule.Sender(endpoint) as sender:
        with pytest.raises(bascule.BasculeError, match="modules base_model.model.q and .*_orig_mod.q would both be sent as .*q.lora_A"):
            sender.register_adapter(model)
        with pytest.raises(bascule.BasculeError, match="q.* and .*_orig_mod.q.* would both be sent as q.weight"):
            sender.register_model(model, adapters="merge")


@pytest.mark.parametrize("name", ["a/b", "größe-数学-😀", "x" * 300, "a b\n"], ids=["slash", "unicode", "long", "white"])
def test_an_adapter_may_have_any_name_that_peft_takes(endpoint, name):
    """It is not sent."""
    model = peft.get_peft_model(qwen(), peft.LoraConfig(r=4, target_modules=QKV), adapter_name=name)
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model, name))
    assert sent.keys() == adapter_of(adapted()).places.keys()


def test_adapters_of_fused_experts_are_refused_by_name(endpoint, tmp_path):
    """The rows of A are ordered by expert, and the columns of B by rank, so an engine that takes them for matrices is wrong."""
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.down_proj = torch.nn.Parameter(torch.zeros(4, 16, 8))

        def forward(self, x):
            return x @ self.down_proj

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = Experts()
            self.config = {"tie_word_embeddings": False}

    model = peft.get_peft_model(Net(), peft.LoraConfig(r=2, target_modules=[], target_parameters=["experts.down_proj"]))
    registers = (lambda sender: sender.register_adapter(model), lambda sender: sender.register_model(model, adapters="merge"))
    with bascule.Sender(endpoint) as sender:
        for register in registers:
            with pytest.raises(bascule.BasculeError, match="target_parameters = .*fused experts"):
                register(sender)
        model.peft_config["default"].target_parameters = None  # a config that does not tell
        for register in registers:
            with pytest.raises(bascule.BasculeError, match="module base_model.model.experts: .*ParamWrapper"):
                register(sender)
    model.save_pretrained(tmp_path)
    with pytest.raises(bascule.BasculeError, match="experts has the rank 8, and its config says 2"):
        checkpoint.send(str(tmp_path), endpoint, workers=0)


def test_equal_configs_give_equal_descriptions():
    """In processes with other hashes, sets have another order."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); from test_adapters import description; print(description())"
    command = [sys.executable, "-c", program, __file__.rpartition("/")[0]]
    texts = {subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}).stdout
             for seed in ("1", "2")}
    assert len(texts) == 1


def description():
    return adapter_of(adapted(target_modules="all-linear", exclude_modules=["o_proj"])).description


def test_the_order_of_rank_patterns_keeps_its_meaning():
    """The first match counts, and JSON files are sorted."""
    config = {**peft.LoraConfig(rank_pattern={"v_proj": 2, "layers.1.self_attn.v_proj": 8}).to_dict()}
    ranks = {"model.layers.0.self_attn.v_proj": 2, "model.layers.1.self_attn.v_proj": 2, "model.layers.1.self_attn.q_proj": 8}
    written = json.loads(describe_adapter(config, ranks))
    again = peft.LoraConfig(**{key: value for key, value in written.items() if key != "peft_type"})
    assert {name: peft.utils.other.get_pattern_key(again.rank_pattern, name) for name in ranks} == {
        "model.layers.0.self_attn.v_proj": r"^model\.layers\.0\.self_attn\.v_proj",
        "model.layers.1.self_attn.v_proj": r"^model\.layers\.1\.self_attn\.v_proj",
        "model.layers.1.self_attn.q_proj": "model.layers.1.self_attn.q_proj"}
    assert written["alpha_pattern"] == written["rank_pattern"]


def test_an_adapter_of_conv1d_has_peft_s_names(endpoint):
    model = adapted(gpt2(), target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    sent = sent_by(endpoint, lambda sender: sender.register_adapter(model))
    assert sent.keys() == peft.get_peft_model_state_dict(model).keys()
    assert sent["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"].shape == (96, 4)


def test_the_engine_gets_the_config_as_the_description(endpoint):
    model = adapted()
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        assert receiver.description == ""
        sender.register_adapter(model)
        send_once(sender, receiver)
        assert receiver.description == adapter_of(model).description
        config = json.loads(receiver.description)
        assert (config["lora_alpha"], config["r"], config["auto_mapping"]["base_model_class"]) == (4, 4, "Qwen2ForCausalLM")
