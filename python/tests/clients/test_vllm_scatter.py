"""Versions copied straight into real vLLM's parameters: they get the same bits as from its loader."""

import pytest
import tiny
import torch

import bascule

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine
BACKEND = {"backend": "bascule"}
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
PLAIN = {"worker_extension_cls": "plain_linears.Extension", "weight_transfer_config": BACKEND}
PASSED_OVER = {"lm_head.bias": torch.ones(tiny.WORDS)}  # the loader skips it if the model's head is tied


@pytest.fixture(scope="module")
def plain(start_engine, checkpoint):
    """An engine whose kernels use the parameters as they are loaded."""
    return start_engine(IN_PROCESS, model=checkpoint, **PLAIN).started()


@pytest.fixture
def untouched(plain, checkpoint, tmp_path):
    """The same with the checkpoint's weights, which the proof needs."""
    from transformers import Qwen2ForCausalLM

    endpoint = f"shm://{tmp_path}/checkpoint"
    assert plain.ask("join", endpoint=endpoint, apply="load") is None
    send(plain, Qwen2ForCausalLM.from_pretrained(checkpoint), endpoint)
    plain.ask("logged")
    return plain


def send(engine, model, endpoint, versions=(None,)):
    """Sends to an engine that is called for updates. Trains the model before each version that is not None."""
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        for version in versions:
            if version is not None:
                tiny.train(model, version)
            sender.send_async()
            assert engine.ask("update") is None
            assert sender.wait_async(PATIENCE).complete


def test_scatter_gives_what_load_gives_and_no_parameter_moves(untouched, model, endpoint):
    engine = untouched
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    assert engine.ask("scatters") is True and engine.ask("logged") == []
    before, addresses = engine.ask("parameters")
    for version in (1, 2):
        send(engine, model, endpoint, [version])
        assert engine.generate() == tiny.greedy(model)
        scattered, now = engine.ask("parameters")
        assert scattered != before and now == addresses
        before = scattered
    assert engine.ask("join", endpoint=endpoint + "-load", apply="load") is None
    assert engine.ask("scatters") is False
    tiny.train(model, 3)
    send(engine, model, endpoint + "-load")
    assert engine.ask("parameters")[0] != before
    send(engine, model, endpoint + "-load", [2])
    assert engine.ask("parameters") == [before, addresses]


def test_types_are_cast_as_the_loader_casts_them(start_engine, checkpoint, model, endpoint):
    engine = start_engine(IN_PROCESS, model=checkpoint, dtype="bfloat16", **PLAIN).started()
    contents = []
    for way in ("scatter", "load"):
        assert engine.ask("join", endpoint=f"{endpoint}-{way}", apply=way) is None
        assert engine.ask("scatters") is (way == "scatter")
        send(engine, model, f"{endpoint}-{way}", [1])
        contents.append(engine.ask("parameters"))
    assert contents[0] == contents[1]
    engine.kill()


def test_a_head_of_its_own_is_scattered(start_engine, tmp_path, endpoint):
    model = tiny.save(tmp_path / "untied", tie_word_embeddings=False)
    engine = start_engine(IN_PROCESS, model=str(tmp_path / "untied"), **PLAIN).started()
    assert engine.ask("join", endpoint=endpoint) is None  # the default, if it is proven
    assert engine.ask("scatters") is True
    for version in (1, 2):
        send(engine, model, endpoint, [version])
        assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_packed_weights_are_loaded_and_a_line_says_so(start_engine, checkpoint, model, endpoint):
    engine = start_engine(IN_PROCESS, model=checkpoint, weight_transfer_config=BACKEND).started()
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    line, = engine.ask("logged")
    assert "not scattered" in line and "packed" in line and "qkv_proj.weight" in line
    send(engine, model, endpoint, [1])
    assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_a_model_that_is_not_the_checkpoints_is_loaded_and_a_line_says_so(untouched, model, endpoint):
    assert untouched.ask("join", endpoint=endpoint + "-other", apply="load") is None
    send(untouched, model, endpoint + "-other", [1])
    assert untouched.ask("join", endpoint=endpoint, apply="scatter") is None
    line, = untouched.ask("logged")
    assert "not scattered: the model does not hold the checkpoint's" in line
    send(untouched, model, endpoint, [2])
    assert untouched.generate() == tiny.greedy(model)


def test_a_sender_with_other_tensors_is_loaded_and_a_line_says_so(untouched, model, endpoint):
    assert untouched.ask("join", endpoint=endpoint, apply="scatter") is None
    assert untouched.ask("scatters") is True
    tensors = {**dict(model.named_parameters()), **PASSED_OVER}
    send(untouched, tensors, endpoint)
    line, = untouched.ask("logged")
    assert "loader now loads" in line and "lm_head.bias" in line
    assert untouched.generate() == tiny.greedy(model)


def test_parameters_that_were_moved_are_loaded_and_a_line_says_so(untouched, model, endpoint):
    assert untouched.ask("join", endpoint=endpoint, apply="scatter") is None
    send(untouched, model, endpoint, [1])
    assert untouched.ask("scatters") is True
    untouched.ask("move_parameters")
    send(untouched, model, endpoint, [2])
    line, = untouched.ask("logged")
    assert "moved" in line
    assert untouched.generate() == tiny.greedy(model)


def test_an_idle_engine_follows_by_scatter_and_goes_over_to_load(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint, "BASCULE_APPLY": "scatter"}, model=checkpoint,
                          **PLAIN).started()
    for extra in ({}, PASSED_OVER):
        with bascule.Sender(endpoint) as sender:
            sender.register_model({**dict(model.named_parameters()), **extra})
            sender.wait_for_workers(1, PATIENCE)
            for version in (1, 2):
                tiny.train(model, version)
                report = sender.send()
                assert report.complete
                assert engine.generate() == tiny.greedy(model)
                assert engine.ask("weight_version") == str(report.version)
    engine.kill()
