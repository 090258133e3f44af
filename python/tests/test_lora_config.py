"""What each key of PEFT's config means for a send. Needs neither torch nor peft."""

import random
import re
from pathlib import Path

import pytest

import bascule
from bascule import lora_config
from bascule.lora_config import KEYS, Pattern, check_config, describe_adapter, parsed, scale_by

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
    assert scale_by({**CONFIG, **config})("model.layers.0.self_attn.q_proj", 4) == scale


def test_a_pattern_for_each_of_many_modules_is_compiled_once():
    """re itself keeps 512 of them, so that a description took 40 s for 1,000 modules."""
    ranks = {f"model.layers.{layer}.experts.{number}.{name}_proj": 1 + number % 3
             for layer in range(4) for number in range(64) for name in ("up", "gate", "down")}
    config = {**CONFIG, "r": 2, "rank_pattern": ranks, "alpha_pattern": dict.fromkeys(ranks, 2.0)}
    before = lora_config._expression.cache_info()
    check_config(config)
    describe_adapter(config, ranks)
    assert set(map(scale_by(config), ranks, [2] * len(ranks))) == {1.0}
    after = lora_config._expression.cache_info()
    assert after.misses - before.misses == len(ranks)
    # A name is compared with the keys that may match it. With all of them, it took 25 s for 4,000 modules.
    assert after.hits - before.hits <= 3 * len(ranks)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_key_that_matches_counts_whatever_the_keys_are(seed):
    """PEFT's rule, written out. Few characters, so that many keys match."""
    chance, matched = random.Random(seed), 0
    for _ in range(3000):
        name = "".join(chance.choices("aab..-\n", k=chance.randint(0, 7)))
        parts = ("a", "a", "b", ".", ".", r"\.", r"\-", "-", "^", "*", "\n", "(a|b)", "[ab]")
        keys = {"".join(chance.choices(parts, k=chance.randint(0, 6))): number for number in range(chance.randint(0, 6))}
        keys = {key: number for key, number in keys.items() if is_expression(key)}
        expected = next((number for key, number in keys.items() if re.match(rf"(.*\.)?({key})$", name)), None)
        assert Pattern(keys).value(name, None) == expected, (keys, name)
        matched += expected is not None
    assert matched > 300


def is_expression(key):
    try:
        return bool(re.compile(f"({key})"))
    except re.error:
        return False


def test_the_description_gives_each_module_the_scale_1_in_any_reader():
    ranks = {f"model.layers.{layer}.self_attn.{name}": 4 if name == "k_proj" else 8 for layer in range(2)
             for name in ("q_proj", "k_proj")}
    config = {**CONFIG, "use_rslora": True, "lora_alpha": 7, "rank_pattern": {"k_proj": 4}, "alpha_pattern": {"q_proj": 3},
              "target_modules": {"q_proj", "k_proj"}}
    written = parsed(describe_adapter(config, ranks, ("Model", "module")), "the description")
    assert set(map(scale_by(written), *zip(*ranks.items()))) == {1.0}
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


@pytest.mark.parametrize("text, shown", [("NaN", "nan"), ("[-Infinity]", "[-inf]"), ("1e999", "inf"), (r'"\ud800"', r"'\ud800'"),
                                         ('{"rho": ' + 400 * "[" + "NaN" + 400 * "]" + "}", "{'rho': [[[")], ids=lambda text: text[:10])
def test_what_json_cannot_express_is_refused_by_name_even_in_harmless_keys(text, shown):
    """Python reads and writes it, and so does PEFT; other readers of the description would fail."""
    config = parsed('{"peft_type": "LORA", "eva_config": %s}' % text, "here")
    for kind in ("adapter", "merged"):
        with pytest.raises(bascule.BasculeError, match=re.escape(f"its config has eva_config = {shown}")) as error:
            check_config({**CONFIG, **config}, kind)
        assert "JSON cannot express" in str(error.value) and error.value.code == "INVALID_ARGUMENT"
    check_config({**CONFIG, "eva_config": {"rho": [[1.5], None, "é"]}})
