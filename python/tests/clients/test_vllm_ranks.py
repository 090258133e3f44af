"""Real vLLM with two ranks, each of which copies its own slices of a version straight into its parameters."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
import torch
from transformers import Qwen2ForCausalLM

import bascule

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine
# The vocabulary is padded to 512, of which rank 1 has 244 rows. Both ranks hold the one key and value head.
SIZES = {"vocab_size": 500, "num_key_value_heads": 1}
RANKS = {"tensor_parallel_size": 2, "worker_extension_cls": "sliced.Extension",
         "weight_transfer_config": {"backend": "bascule"}}


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sliced")
    tiny.save(folder, **SIZES)
    return str(folder)


@pytest.fixture
def model(sliced):
    return Qwen2ForCausalLM.from_pretrained(sliced)


@pytest.fixture(scope="module")
def engine(start_engine, sliced):
    """An engine that is called for updates."""
    return start_engine({}, model=sliced, **RANKS).started()


def scatters(engine):
    return engine.ask("rpc", method="sliced_scatters")


def answer(engine):
    """The greedy tokens and their log-probabilities."""
    [[tokens, probabilities, _]] = engine.ask("generate_adapted", prompts=[tiny.PROMPT], tokens=tiny.TOKENS)
    return tokens, probabilities


def send(engine, tensors, endpoint, before_each=(lambda: None,)):
    """Sends a version after each call of `before_each`; returns the engine's answers and digests."""
    found = []
    with bascule.Sender(endpoint) as sender:
        sender.register_model(tensors)
        sender.wait_for_workers(2, PATIENCE)
        for train in before_each:
            train()
            sender.send_async()
            assert engine.ask("update") is None
            report = sender.wait_async(PATIENCE)
            assert report.complete, report.workers
            found.append((answer(engine), engine.ask("rpc", method="sliced_digests")))
    return found


def test_ranks_scatter_their_slices_and_get_what_loading_gives(engine, sliced, model, endpoint):
    trained = [lambda version=version: tiny.train(model, version) for version in (1, 2, 3)]
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    assert scatters(engine) == [True, True]
    # Each rank reads its own weights alone, without the padding of the vocabulary: 12 rows of 64 elements.
    assert [own - read for read, own in engine.ask("rpc", method="sliced_bytes")] == [0, 12 * 64 * 4]
    expected = []
    scattered = send(engine, model, endpoint, [*trained, lambda: expected.append(tiny.greedy(model))])
    assert [tokens for (tokens, _), _ in scattered][-1] == expected[0]
    assert engine.ask("join", endpoint=endpoint + "-load", apply="load") is None
    assert scatters(engine) == [False, False]
    assert send(engine, model, endpoint + "-load", trained) == scattered[:3]
    # The model no longer holds the checkpoint's weights: neither rank can prove anything.
    assert engine.ask("join", endpoint=endpoint + "-again", apply="scatter") is None
    assert scatters(engine) == [False, False]


def holds_the_checkpoint(engine, sliced, endpoint):
    """Gives the engine its checkpoint's weights back, which the proof needs, and returns them."""
    checkpoint = Qwen2ForCausalLM.from_pretrained(sliced)
    assert engine.ask("join", endpoint=endpoint + "-checkpoint", apply="load") is None
    send(engine, checkpoint, endpoint + "-checkpoint")
    return checkpoint


def test_a_sender_with_another_tensor_makes_all_ranks_load(engine, sliced, endpoint):
    checkpoint = holds_the_checkpoint(engine, sliced, endpoint)
    before = engine.ask("rpc", method="sliced_digests")
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    assert scatters(engine) == [True, True]
    passed_over = {"lm_head.bias": torch.ones(500)}  # by the loader, as the model's head is tied
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**dict(checkpoint.named_parameters()), **passed_over})
        sender.wait_for_workers(2, PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while True:  # the ranks may be refused first, and come back
            sender.send_async()
            engine.ask("update")
            if sender.wait_async(PATIENCE).complete:
                break
            assert time.monotonic() < deadline
    assert scatters(engine) == [False, False]
    assert engine.ask("rpc", method="sliced_digests") == before


def test_a_sender_with_a_larger_tensor_is_refused_though_slices_would_fit(engine, sliced, endpoint):
    checkpoint = holds_the_checkpoint(engine, sliced, endpoint)
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    larger = {"model.embed_tokens.weight": torch.ones(501, 64)}
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**dict(checkpoint.named_parameters()), **larger})
        sender.wait_for_workers(2, PATIENCE)
        sender.send_async()
        deadline = time.monotonic() + PATIENCE
        while scatters(engine) != [False, False]:  # each rank notices by itself
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_rank_without_a_proof_makes_all_ranks_load(engine, sliced, model, endpoint):
    holds_the_checkpoint(engine, sliced, endpoint)
    assert engine.ask("rpc", method="sliced_fails", rank=1) == [None, None]
    assert engine.ask("join", endpoint=endpoint, apply="scatter") is None
    assert scatters(engine) == [False, False]
    assert engine.ask("rpc", method="sliced_fails", rank=None) == [None, None]
    expected = []
    found = send(engine, model, endpoint, [lambda: tiny.train(model, 1), lambda: expected.append(tiny.greedy(model))])
    assert found[0][0][0] == expected[0]


def lost(sender):
    """What a send says to which no worker flips: an error, or a report that is not complete."""
    try:
        report = sender.send()
    except bascule.BasculeError as error:
        return str(error)
    assert not report.complete
    return report.why_incomplete


def test_a_killed_rank_is_named_and_an_engine_that_starts_again_scatters(start_engine, engine, sliced, model, endpoint):
    holds_the_checkpoint(engine, sliced, endpoint)
    assert engine.ask("join", endpoint=endpoint, worker="e", apply="scatter") is None
    assert scatters(engine) == [True, True]
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        assert sorted(sender.wait_for_workers(2, PATIENCE)) == ["e-0", "e-1"]
        os.kill(engine.ask("rpc", method="sliced_process")[1], signal.SIGKILL)
        assert "e-1" in lost(sender)
        engine.kill()
        engine = start_engine({"BASCULE_ENDPOINT": endpoint, "BASCULE_WORKER": "e"}, model=sliced, **RANKS).started()
        assert scatters(engine) == [True, True]
        sender.wait_for_workers(2, PATIENCE)
        for version in (1, 2):
            tiny.train(model, version)
            report = sender.send()
            assert report.complete, report.workers
            assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_the_example_trains_by_fsdp2_and_vllm_generates(sliced):
    example = Path(__file__).parents[3] / "examples" / "python" / "fsdp.py"
    done = subprocess.run([sys.executable, example, sliced], text=True, stdout=subprocess.PIPE, timeout=5 * PATIENCE, check=True,
                          env={**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
                               "VLLM_NO_USAGE_STATS": "1"})
    assert "version 30 continues 5 6 7 with 8 9 10 11" in done.stdout
