"""What each key of PEFT's config means for a send. Needs neither torch nor peft."""

import re
from pathlib import Path

import pytest

import bascule
from bascule import lora_config
from bascule.lora_config import KEYS, check_config, describe_adapter, parsed, scale_of

CONFIG = {name: key.default for name, key in KEYS.items()}


def test_the_page_says_of_each_key_what_the_table_says():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "adapters.md").read_text().partition("## Each key")[2]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    said = {key: (adapter.split(";")[0], merged.split(";")[0]) for keys, adapter, merged in rows
            for key in re.findall(r"`(\w+)`", keys.split(":")[0])}
    assert said == {name: (key.adapter, key.merged) for name, key in KEYS.items()}


@pytest.mark.parametrize("key, value", [
    ("use_dora", True), ("lora_bias", True), ("layer_replication", [[0, 2]]), ("alora_invocation_tokens", [1]),
    ("use_qalora", True), ("use_bdlora", {"nblocks": 2}), ("velora_config", {"num_groups": 2}), ("kasa_config", {"beta": 1.0}),
    ("monteclora_config", {"num_samples": 2}), ("arrow_config", {"top_k": 1}), ("megatron_config", {"a": 1}),
    ("target_parameters", ["mlp.experts.gate_up_proj"]), ("trainable_token_indices", [3]), ("bias", "all"),
    ("bias", "lora_only"), ("init_lora_weights", "pissa"), ("init_lora_weights", "pissa_niter_4"),
    ("init_lora_weights", "olora"), ("init_lora_weights", "corda"), ("init_lora_weights", "loftq"), ("init_lora_weights", "lora_ga"),
    ("init_lora_weights", "of a newer PEFT")])
def test_what_an_engine_would_compute_in_another_way_is_refused_by_name(key, value):
    config = {**CONFIG, key: value}
    with pytest.raises(bascule.BasculeError, match=f"its config has {key} = ") as error:
        check_config(config)
    assert error.value.code == "INVALID_ARGUMENT"
    if key == "bias" or (key == "init_lora_weights" and "newer" not in value):
        check_config(config, "merged")
    else:
        with pytest.raises(bascule.BasculeError, match=f"its config has {key} = "):
            check_config(config, "merged")


@pytest.mark.parametrize("value", [True, False, "gaussian", "eva", "orthogonal", "mica"])
def test_an_initialisation_that_left_the_base_as_it_was_is_sent(value):
    check_config({**CONFIG, "init_lora_weights": value})


def test_a_key_of_a_newer_peft_may_only_have_its_default():
    config = CONFIG
    check_config({**config, "use_next": False, "next_config": None})
    check_config({**config, "next_size": 16}, defaults={"next_size": 16})
    for given in ({"next_size": 16}, {"use_next": True}):
        with pytest.raises(bascule.BasculeError, match="next.* a key of PEFT that Bascule does not know"):
            check_config({**config, **given})
    with pytest.raises(bascule.BasculeError, match="use_next = False"):
        check_config({**config, "use_next": False}, defaults={"use_next": True})


@pytest.mark.parametrize("config, scale", [
    ({"r": 4, "lora_alpha": 12}, 3.0), ({"r": 4, "lora_alpha": 12, "use_rslora": True}, 6.0),
    ({"r": 8, "lora_alpha": 12, "rank_pattern": {"q_proj": 4}}, 3.0), ({"r": 4, "alpha_pattern": {"q_proj": 2}}, 0.5),
    ({"r": 4, "lora_alpha": 4, "alpha_pattern": {"proj": 2}}, 1.0),  # a key must match from a dot to the end
    ({"r": 4, "lora_alpha": 4, "alpha_pattern": {".*_proj": 2, "q_proj": 8}, "use_rslora": True}, 1.0)])
def test_the_scale_is_by_peft_s_rules(config, scale):
    assert scale_of({**CONFIG, **config}, "model.layers.0.self_attn.q_proj", 4) == scale


def test_a_pattern_for_each_of_many_modules_is_compiled_once():
    """re itself keeps 512 of them, so that a description took 40 s for 1,000 modules."""
    ranks = {f"model.layers.{layer}.experts.{number}.{name}_proj": 1 + number % 3
             for layer in range(4) for number in range(64) for name in ("up", "gate", "down")}
    config = {**CONFIG, "r": 2, "rank_pattern": ranks, "alpha_pattern": dict.fromkeys(ranks, 2.0)}
    before = lora_config._expression.cache_info().misses
    check_config(config)
    describe_adapter(config, ranks)
    assert {scale_of(config, module, 2) for module in ranks} == {1.0}
    assert lora_config._expression.cache_info().misses - before == len(ranks)


def test_the_description_gives_each_module_the_scale_1_in_any_reader():
    ranks = {f"model.layers.{layer}.self_attn.{name}": 4 if name == "k_proj" else 8 for layer in range(2)
             for name in ("q_proj", "k_proj")}
    config = {**CONFIG, "use_rslora": True, "lora_alpha": 7, "rank_pattern": {"k_proj": 4}, "alpha_pattern": {"q_proj": 3},
              "target_modules": {"q_proj", "k_proj"}}
    written = parsed(describe_adapter(config, ranks, ("Model", "module")), "the description")
    assert {scale_of(written, module, rank) for module, rank in ranks.items()} == {1.0}
    assert written["target_modules"] == ["k_proj", "q_proj"] and written["rank_pattern"] == {"k_proj": 4}
    assert written["auto_mapping"] == {"base_model_class": "Model", "parent_library": "module"}
    check_config(written)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"r": 8}', "[" * 100000])
def test_what_is_no_config_is_named(text):
    with pytest.raises(bascule.BasculeError, match="^here: expected PEFT's adapter_config.json") as error:
        parsed(text, "here")
    assert error.value.code == "DATA_LOSS"


def test_another_kind_of_adapter_is_refused():
    for config in ({}, {"peft_type": "ADALORA"}, {"peft_type": None}):
        with pytest.raises(bascule.BasculeError, match="expected the peft_type LORA"):
            check_config(config)


@pytest.mark.parametrize("given", [
    {"target_modules": "all-linear"}, {"target_modules": {"q_proj"}}, {"exclude_modules": r".*\.0\..*"},
    {"modules_to_save": ("norm",)}, {"layers_to_transform": 1}, {"auto_mapping": {}},
    {"layers_to_transform": [0, 1], "layers_pattern": ["h", "layers"]}], ids=str)
def test_whatever_peft_takes_as_names_of_modules_is_sent(given):
    check_config({**CONFIG, **given})


def test_what_a_config_has_that_no_key_should_have_is_refused_by_name():
    """Files come from elsewhere."""
    for given in ({"r": "8"}, {"r": 0}, {"lora_alpha": None}, {"rank_pattern": [1]}, {"alpha_pattern": {"(": 2}},
                  {"alpha_pattern": {"(?i)q": 2}}, {"rank_pattern": {"q": "x"}}, {"use_rslora": "yes"}, {"modules_to_save": 3},
                  {"modules_to_save": "lm_head"}, {"target_modules": "q_proj("}, {"target_modules": [1]},
                  {"exclude_modules": {"q_proj": 1}}, {"layers_to_transform": "1"}, {"layers_to_transform": [True]},
                  {"layers_pattern": 3}, {"auto_mapping": "Qwen2ForCausalLM"}):
        (name,) = given
        with pytest.raises(bascule.BasculeError, match=f"its config has {name} = "):
            check_config({**CONFIG, **given})
