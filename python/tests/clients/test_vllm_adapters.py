"""Adapters in a real vLLM: after each version, tokens and log-probabilities equal what transformers and PEFT compute."""

import itertools
import re
import time

import pytest
import tiny

import bascule

pytest.importorskip("vllm")
pytest.importorskip("peft")
import torch  # noqa: E402
from adapted import QKV, adapted, expected, train  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine
LORA = {"enable_lora": True, "max_lora_rank": 16, "max_loras": 2, "max_model_len": 256}
NAMES = [f"a{number}" for number in range(24)]
LONG = list(range(3, 103))  # a prompt of several blocks of the prefix cache


@pytest.fixture(scope="module")
def engine(start_engine, tmp_path_factory):
    """An engine that follows all of NAMES, with the checkpoint's folder and the endpoints' folder."""
    folder = tmp_path_factory.mktemp("adapters")
    tiny.save(folder / "checkpoint")
    engine = start_engine({"BASCULE_ADAPTERS": ",".join(f"{name}=shm://{folder}/{name}" for name in NAMES)},
                          model=f"{folder}/checkpoint", max_cpu_loras=len(NAMES), block_size=32,
                          enable_prefix_caching=True, worker_extension_cls="counting_loads.Extension", **LORA).started()
    engine.folder, engine.checkpoint = folder, f"{folder}/checkpoint"
    yield engine
    engine.kill()


unused = itertools.cycle(NAMES)


@pytest.fixture
def name():
    """An adapter that no test has used."""
    return next(unused)


def sending(where, model):
    """A sender of an adapter, which the engine has joined."""
    sender = bascule.Sender(where)
    sender.register_adapter(model)
    sender.wait_for_workers(1, PATIENCE)
    return sender


def assert_serves(engine, model, adapter, prompt=tiny.PROMPT):
    [[tokens, probabilities, reason]] = engine.ask("generate_adapted", prompts=[prompt], tokens=tiny.TOKENS, adapter=adapter)
    assert reason is None
    wanted, wanted_probabilities = expected(model, prompt)
    assert tokens == wanted
    assert probabilities == pytest.approx(wanted_probabilities, abs=1e-3)


@pytest.mark.parametrize("config", [
    {},
    {"target_modules": "all-linear", "r": 16},
    {"use_rslora": True, "lora_alpha": 4},
    {"target_modules": "all-linear", "rank_pattern": {"q_proj": 4, "layers.1.mlp.down_proj": 16},
     "alpha_pattern": {"v_proj": 3, "layers.0.self_attn.o_proj": 20}},
    {"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1]},
], ids=["qkv", "all-linear", "rslora", "patterns", "some"])
def test_each_version_is_served_as_by_peft(engine, name, config):
    model = adapted(engine.checkpoint, **config)
    with sending(f"shm://{engine.folder}/{name}", model) as sender:
        for version in (1, 2, 3):
            train(model, version)
            report = sender.send()
            assert report.complete, str(report.workers[0].error)
            assert_serves(engine, model, name)
    assert engine.ask("adapters")[name]["versions"] == [f"{name}@2", f"{name}@3"]


def test_adapters_and_the_base_model_are_served_side_by_side(engine, name):
    other, base = next(unused), Qwen2ForCausalLM.from_pretrained(engine.checkpoint).eval()
    models = {name: adapted(engine.checkpoint), other: adapted(engine.checkpoint, target_modules=["o_proj"])}
    for number, (each, model) in enumerate(models.items()):
        train(model, number)
        with sending(f"shm://{engine.folder}/{each}", model) as sender:
            assert sender.send().complete
    for each, model in models.items():
        assert_serves(engine, model, each)
    assert_serves(engine, base, None)


def test_no_cached_prefix_of_another_version_is_used(engine, name):
    model = adapted(engine.checkpoint)
    with sending(f"shm://{engine.folder}/{name}", model) as sender:
        for version in (1, 2, 3):
            train(model, version)
            assert sender.send().complete
            assert_serves(engine, model, name, LONG)
            assert_serves(engine, model, name, LONG)  # from the cache


def test_a_trainer_that_starts_again_does_not_get_what_was_cached_of_the_first(engine, name):
    model = adapted(engine.checkpoint)
    for run in (1, 2):
        train(model, run)
        with sending(f"shm://{engine.folder}/{name}", model) as sender:
            assert sender.send().complete
            assert_serves(engine, model, name, LONG)
    assert len(set(engine.ask("adapters")[name]["versions"])) == 2


def test_a_version_is_loaded_once_however_many_requests_name_it(engine, name):
    model = adapted(engine.checkpoint)
    train(model, 1)
    with sending(f"shm://{engine.folder}/{name}", model) as sender:
        [before] = engine.ask("rpc", method="adapter_loads")
        assert sender.send().complete
    for _ in range(3):
        assert_serves(engine, model, name)
    assert engine.ask("rpc", method="adapter_loads") == [before + 1]


def test_a_request_before_the_first_version_ends_with_the_reason(engine, name):
    [[tokens, _, reason]] = engine.ask("generate_adapted", prompts=[tiny.PROMPT], tokens=3, adapter=name)
    assert tokens == [] and f"adapter {name} has no version yet" in reason


def wrapped(checkpoint):
    """The model within another one of the same name, so that its tensors have another prefix."""

    class Wrapper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.language_model = Qwen2ForCausalLM.from_pretrained(checkpoint)
            self.config = self.language_model.config

    Wrapper.__name__ = "Qwen2ForCausalLM"
    return Wrapper()


def small(kind, config, **sizes):
    return kind(config(**{"vocab_size": tiny.WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                          "num_attention_heads": 2, "num_key_value_heads": 2, **sizes}))


@pytest.mark.parametrize("base, config, named", [
    (None, {"r": 32}, "module model.layers.0.self_attn.[qkv]_proj: .* rank 32, and this engine has room for 16"),
    (None, {"rank_pattern": {"layers.1.self_attn.v_proj": 32}},
     "module model.layers.1.self_attn.v_proj: .* rank 32, and this engine has room for 16"),
    (None, {"modules_to_save": ["lm_head"]}, "modules_to_save = .'lm_head'."),
    (lambda _: small(LlamaForCausalLM, LlamaConfig), {}, "for a LlamaForCausalLM; .* Qwen2ForCausalLM"),
    (lambda _: small(Qwen2ForCausalLM, Qwen2Config, hidden_size=32), {},
     r"module model.layers.0.self_attn.[qkv]_proj: .* weight of \[\d+, 32\], and this engine's is \[\d+, 64\]"),
    (lambda _: small(Qwen2ForCausalLM, Qwen2Config, num_hidden_layers=3), {},
     r"binds not all modules \(6 of 9\) .* model.layers.2.self_attn.k_proj, .*q_proj, .*v_proj"),
    (None, {"target_modules": [*QKV, "embed_tokens"]}, r"binds not all modules \(6 of 7\) .* no module model.embed_tokens"),
    (wrapped, {}, "binds no module .* language_model.model.layers.0.self_attn.k_proj, .* and 3 more"),
], ids=["rank", "rank_pattern", "modules_to_save", "class", "sizes", "layers", "embeddings", "prefix"])
def test_an_adapter_that_does_not_fit_is_refused_by_name_and_the_old_version_serves(engine, name, base, config, named):
    where = f"shm://{engine.folder}/{name}"
    good = adapted(engine.checkpoint)
    train(good, 1)
    with sending(where, good) as sender:
        assert sender.send().complete
    bad = adapted(base(engine.checkpoint) if base else engine.checkpoint, **config)
    train(bad, 2)
    with sending(where, bad) as sender:
        report = sender.send()
        assert not report.complete
        error = str(report.workers[0].error)
    assert re.search(named, error), error
    assert_serves(engine, good, name)
    assert engine.ask("adapters")[name]["error"]


def test_a_model_at_the_endpoint_of_an_adapter_is_refused(engine, name, model):
    with bascule.Sender(f"shm://{engine.folder}/{name}") as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        report = sender.send()
        assert not report.complete and "a model, not an adapter" in str(report.workers[0].error)
    error = engine.ask("adapters")[name]["error"]
    time.sleep(1.5)  # it tries again, without a sender
    assert engine.ask("adapters")[name]["error"] == error
    [[_, _, reason]] = engine.ask("generate_adapted", prompts=[tiny.PROMPT], tokens=3, adapter=name)
    assert reason.endswith(f"adapter {name} has no version yet: {error}")
