"""bascule.peft.follow(), and `bascule send` of an adapter's folder."""

import json
import subprocess
import sys

import peft
import pytest
import safetensors.torch
import torch
from adapted import QKV, adapted, gpt2, logits, qwen, train
from test_adapters import CONFIGS

import bascule
import bascule.peft
from bascule import checkpoint, hf


def compared(served, trained):
    torch.testing.assert_close(logits(served), logits(trained), rtol=1e-5, atol=1e-5)


def with_another_scale(config):
    return {key: value for key, value in config.items() if key not in ("lora_alpha", "alpha_pattern", "use_rslora")}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_each_of_three_versions_computes_what_the_trainer_computes(endpoint, tmp_path, config):
    trained = adapted(**config)
    served = adapted(seed=9, **with_another_scale(config))
    alone = qwen()
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint) as following:
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        for version in range(1, 4):
            train(trained, version)
            assert sender.send().complete, following.error
            with following.held() as held:
                assert held == version
                compared(served, trained)
            assert not torch.allclose(logits(served), logits(alone), atol=1e-2)
    compared(served, trained)
    served.save_pretrained(tmp_path, save_embedding_layers=False)
    compared(peft.PeftModel.from_pretrained(qwen(), tmp_path).eval(), trained)


def test_a_scale_of_a_power_of_two_leaves_the_logits_as_they_are_bit_for_bit(endpoint):
    trained, served = adapted(lora_alpha=8), adapted(seed=9)
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint) as following:
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        assert sender.send().complete, following.error
        assert torch.equal(logits(served), logits(trained))


def test_the_adapter_may_have_another_name_and_type(endpoint):
    trained, served = adapted(), adapted(seed=9)
    served.add_adapter("math", peft.LoraConfig(r=4, target_modules=QKV))
    served.set_adapter("math")
    default = {name: tensor.clone() for name, tensor in peft.get_peft_model_state_dict(served, adapter_name="default").items()}
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint, name="math") as following:
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        assert sender.send().complete, following.error
        compared(served, trained)
    assert all(torch.equal(default[name], tensor)
               for name, tensor in peft.get_peft_model_state_dict(served, adapter_name="default").items())


REFUSED = {
    "no module": ({"target_modules": ["o_proj"]}, "binds no module of this model: it adapts .*k_proj and 5 more"),
    "a module too many": ({"target_modules": ["q_proj", "k_proj"]},
                          r"the trainer's adapter is also for model.layers.0.self_attn.v_proj and 1 more"),
    "a module too few": ({"target_modules": [*QKV, "o_proj"]},
                         r"this model's adapter is also for model.layers.0.self_attn.o_proj and 1 more"),
    "another rank": ({"rank_pattern": {"layers.1.self_attn.v_proj": 2}},
                     r"module model.layers.1.self_attn.v_proj: .* its rank is 4, and this model's 2"),
    "another saved module": ({"modules_to_save": ["lm_head"]}, "this model's adapter is also for lm_head"),
}


@pytest.mark.parametrize("own, text", REFUSED.values(), ids=REFUSED)
def test_an_adapter_for_another_model_is_refused_by_name_and_changes_nothing(endpoint, own, text):
    trained, served = adapted(), adapted(seed=9, **own)
    before = logits(served)
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint) as following:
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        report = sender.send()
        assert not report.complete
        with pytest.raises(bascule.BasculeError, match=text):
            raise report.workers[0].error
        with pytest.raises(bascule.BasculeError, match=text):
            raise following.error
        assert torch.equal(logits(served), before)


def test_an_adapter_for_another_model_is_refused_before_it_is_sent(endpoint, monkeypatch):
    loaded = []
    monkeypatch.setattr(bascule.peft._AdapterPlaces, "load", lambda *arguments: loaded.append(arguments))
    with bascule.peft.follow(adapted(r=2), endpoint) as following:
        with bascule.Sender(endpoint) as sender:
            sender.register_adapter(adapted())
            sender.wait_for_workers(1)
            assert "its rank is 4, and this model's 2" in sender.send().why_incomplete
        assert "its rank is 4, and this model's 2" in str(following.error) and not loaded
        with bascule.Sender(endpoint) as sender:
            sender.register_adapter(adapted(r=2))
            sender.wait_for_workers(1)
            assert sender.send().complete and following.error is None and len(loaded) == 1


def test_a_trainer_that_starts_again_is_followed_with_its_own_adapter(endpoint):
    """It has the same names and shapes, and another adapter."""
    served = adapted(seed=9)
    with bascule.peft.follow(served, endpoint) as following:
        for run in range(1, 4):
            trained = adapted(seed=run, lora_alpha=4 * run)
            with bascule.Sender(endpoint) as sender:
                sender.register_adapter(trained)
                sender.wait_for_workers(1)
                assert sender.send().complete, following.error
                compared(served, trained)
                assert following.version == run


def test_modules_below_another_prefix_are_other_modules(endpoint, tmp_path):
    """The names end in the same way, as a language model's do if it is part of a model that also sees."""
    trained, served = adapted(task_type="CAUSAL_LM"), adapted(seed=9)
    trained.save_pretrained(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    safetensors.torch.save_file({name.replace(".model.layers", ".model.language_model.layers"): tensor
                                 for name, tensor in safetensors.torch.load_file(file).items()}, file)
    before = logits(served)
    with bascule.peft.follow(served, endpoint) as following:
        done = send(tmp_path, endpoint)
        text = "binds no module of this model: it adapts model.language_model.layers.0"
        assert done.returncode != 0 and text in done.stdout + done.stderr, done
        assert text in str(following.error)
        assert torch.equal(logits(served), before)


def test_another_class_of_the_base_model_is_refused_by_name(endpoint):
    trained = adapted(gpt2(), target_modules=["c_attn"], fan_in_fan_out=True)
    served = adapted()
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint) as following:
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        assert "for a GPT2LMHeadModel; this model is a Qwen2ForCausalLM" in str(sender.send().workers[0].error)
        assert following.version == 0


def test_a_model_that_would_not_use_the_version_says_so(endpoint, caplog):
    trained, served = adapted(), adapted(seed=9)
    served.add_adapter("math", peft.LoraConfig(r=4, target_modules=QKV))
    with bascule.peft.follow(served, endpoint, name="math"):
        assert any("math follows, and is not active" in record.getMessage() for record in caplog.records)
    served.merge_adapter()
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint):
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        with pytest.raises(bascule.BasculeError, match=r"has merged its adapter.*unmerge_adapter\(\)"):
            raise sender.send().workers[0].error


def test_a_model_whose_base_weights_another_adapter_has_changed_refuses_versions(endpoint):
    trained, served = adapted(), adapted(seed=9)
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint):
        sender.register_adapter(trained)
        sender.wait_for_workers(1)
        assert sender.send().complete
        served.add_adapter("math", peft.LoraConfig(r=4, target_modules=["o_proj"], init_lora_weights="olora"))
        with pytest.raises(bascule.BasculeError, match="'math' of the same model .*'olora'.* a separate copy of the base model"):
            raise sender.send().workers[0].error
    with pytest.raises(bascule.BasculeError, match="a separate copy of the base model"):
        bascule.peft.follow(served, endpoint)


def test_each_end_says_how_to_follow_what_the_other_one_sends(endpoint):
    served = adapted()
    with bascule.Sender(endpoint) as sender, bascule.peft.follow(served, endpoint):
        sender.register_model(qwen())
        sender.wait_for_workers(1)
        assert "follow it with bascule.hf.follow()" in str(sender.send().workers[0].error)
    with pytest.raises(bascule.BasculeError, match="bascule.peft.follow"):
        hf.follow(served, endpoint)
    with bascule.Sender(endpoint) as sender, hf.follow(qwen(), endpoint):
        sender.register_adapter(served)
        sender.wait_for_workers(1)
        assert "follow it with bascule.peft.follow()" in str(sender.send().workers[0].error)
    with pytest.raises(bascule.BasculeError, match="expected a model with PEFT's adapters, found Qwen2ForCausalLM"):
        bascule.peft.follow(qwen(), endpoint)


def test_a_model_follows_one_endpoint_at_a_time(endpoint):
    served = adapted()
    with bascule.peft.follow(served, endpoint), pytest.raises(bascule.BasculeError, match="follows an endpoint already"):
        bascule.peft.follow(served, endpoint)


def send(folder, endpoint):
    return subprocess.run([sys.executable, "-m", "bascule", "send", folder, "--sync", endpoint], capture_output=True, text=True,
                          timeout=100)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_an_adapter_s_folder_is_sent_with_its_scale_folded_in(endpoint, tmp_path, config):
    trained = adapted(**config)
    trained.save_pretrained(tmp_path / "adapter")
    served = adapted(seed=9, **with_another_scale(config))
    with bascule.peft.follow(served, endpoint) as following:
        done = send(tmp_path / "adapter", endpoint)
        assert done.returncode == 0, (done, following.error)
        compared(served, trained)


def test_a_folder_whose_adapters_are_in_subfolders_names_them(endpoint, tmp_path):
    model = peft.get_peft_model(qwen(), peft.LoraConfig(target_modules=QKV), adapter_name="math")
    model.add_adapter("code", peft.LoraConfig(target_modules=QKV))
    model.save_pretrained(tmp_path)
    text = f"adapters in {tmp_path}/code, {tmp_path}/math: give the path of the one to send"
    for config in (None, (tmp_path / "math" / "adapter_config.json").read_text()):
        if config:  # as if somebody had moved the files of one of them
            (tmp_path / "adapter_config.json").write_text(config)
        with pytest.raises(bascule.BasculeError, match=text) as error:
            checkpoint.send(str(tmp_path), endpoint, workers=0)
        assert error.value.code == "NOT_FOUND"
    (tmp_path / "adapter_config.json").unlink()
    for number in range(3):
        (tmp_path / f"checkpoint-{number}").mkdir()
        (tmp_path / f"checkpoint-{number}" / "adapter_config.json").write_text("{}")
    with pytest.raises(bascule.BasculeError, match=f"{tmp_path}/checkpoint-2 and 2 more subfolders: give"):
        checkpoint.send(str(tmp_path), endpoint, workers=0)


def test_a_folder_has_what_is_tied_to_a_saved_module(endpoint, tmp_path):
    """PEFT then names only the embedding in modules_to_save, and writes both."""
    config = {"modules_to_save": ["lm_head"], "ensure_weight_tying": True}
    trained = adapted(qwen(tied=True), **config)
    trained.save_pretrained(tmp_path / "adapter")
    assert "lm_head" not in json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["modules_to_save"]
    served = adapted(qwen(tied=True), seed=9, **config)
    with bascule.peft.follow(served, endpoint) as following:
        done = send(tmp_path / "adapter", endpoint)
        assert done.returncode == 0, (done, following.error)
        compared(served, trained)


def test_a_folder_of_a_compiled_model_has_the_names_of_the_model_within(endpoint, tmp_path):
    """PEFT keeps _orig_mod in the names of its files, and no engine has such modules."""
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=QKV, rank_pattern={"model.layers.0.self_attn.q_proj": 2})
    trained = peft.get_peft_model(torch.compile(qwen()), config).eval()
    train(trained, 1)
    trained.save_pretrained(tmp_path / "adapter")
    served = adapted(seed=9, rank_pattern=config.rank_pattern)
    with bascule.peft.follow(served, endpoint) as following:
        done = send(tmp_path / "adapter", endpoint)
        assert done.returncode == 0, (done, following.error)
        train(again := adapted(rank_pattern=config.rank_pattern), 1)
        compared(served, again)


@pytest.mark.parametrize("change, text", [
    (lambda a, b: {"lora_B.bias": torch.ones(32)}, "q_proj.lora_B.bias is neither the weight of lora_A or lora_B nor in"),
    (lambda a, b: {"lora_A.weight": a.int()}, "q_proj: A of its adapter is int32; expected floating-point"),
    (lambda a, b: {"lora_B.weight": b.bool()}, "q_proj: B of its adapter is bool; expected floating-point"),
    (lambda a, b: {"lora_A.weight": a.to(torch.complex64)}, "q_proj: A of its adapter is complex64; expected floating"),
    (lambda a, b: {"lora_A.weight": a[:0], "lora_B.weight": b[:, :0].contiguous()}, r"q_proj: A .* the shape \[0, 32\]"),
    (lambda a, b: {"lora_A": a.clone()}, "q_proj has .*q_proj.lora_A and .*q_proj.lora_A.weight; expected one A and one B"),
    (lambda a, b: {"_orig_mod.lora_A.weight": a.clone(), "_orig_mod.lora_B.weight": b.clone()},
     "q_proj._orig_mod.lora_A.weight and .*q_proj.lora_A.weight would both be sent as .*q_proj.lora_A.weight"),
], ids=["bias", "int", "bool", "complex", "rank 0", "two", "one name"])
def test_a_folder_with_tensors_that_no_adapter_has_is_refused_by_name(endpoint, tmp_path, change, text):
    adapted().save_pretrained(tmp_path)
    file, module = tmp_path / "adapter_model.safetensors", "base_model.model.model.layers.0.self_attn.q_proj."
    tensors = safetensors.torch.load_file(file)
    changed = change(tensors[f"{module}lora_A.weight"], tensors[f"{module}lora_B.weight"])
    safetensors.torch.save_file({**tensors, **{module + name: tensor for name, tensor in changed.items()}}, file)
    with pytest.raises(bascule.BasculeError, match=text) as error:
        checkpoint.send(str(tmp_path), endpoint, workers=0)
    assert error.value.code == "INVALID_ARGUMENT"


def test_a_folder_that_is_no_whole_adapter_is_refused_by_name(endpoint, tmp_path):
    adapted(use_dora=True).save_pretrained(tmp_path / "dora")
    adapted(r=2).save_pretrained(tmp_path / "rank")
    config = tmp_path / "rank" / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 2', '"r": 4'))
    adapted().save_pretrained(tmp_path / "half")
    tensors = safetensors.torch.load_file(tmp_path / "half" / "adapter_model.safetensors")
    lost = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    safetensors.torch.save_file({name: tensor for name, tensor in tensors.items() if name != lost},
                                tmp_path / "half" / "adapter_model.safetensors")
    adapted().save_pretrained(tmp_path / "more")
    safetensors.torch.save_file({**tensors, "base_model.model.lm_head.weight": torch.zeros(2)},
                                tmp_path / "more" / "adapter_model.safetensors")
    adapted().save_pretrained(tmp_path / "prefix")
    safetensors.torch.save_file({name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()},
                                tmp_path / "prefix" / "adapter_model.safetensors")
    adapted().save_pretrained(tmp_path / "copy")
    safetensors.torch.save_file({name.replace("q_proj", "original_module.q_proj"): tensor for name, tensor in tensors.items()},
                                tmp_path / "copy" / "adapter_model.safetensors")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "adapter_config.json").write_text(json.dumps(peft.LoraConfig().to_dict()))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "adapter_config.json").write_text("{")
    safetensors.torch.save_file(tensors, tmp_path / "torn" / "adapter_model.safetensors")
    for name, text in (("dora", "use_dora = True"), ("rank", "_proj has the rank 2, and its config says 4"),
                       ("half", "q_proj has .*lora_B.weight; expected A and B"), ("more", "lm_head.weight is neither"),
                       ("prefix", "begin with base_model.model., found model.layers"),
                       ("copy", "module model.*original_module.q_proj: it is adapted in a module that modules_to_save"),
                       ("alone", "expected adapter_model.safetensors beside"), ("torn", "expected PEFT's adapter_config.json")):
        with pytest.raises(bascule.BasculeError, match=text):
            checkpoint.send(str(tmp_path / name), endpoint, workers=0)
