"""Real vLLM with two ranks, each of which copies its own slices of a version straight into its parameters."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny
import torch
from transformers import Qwen2ForCausalLM

import bascule

PATIENCE = 120  # seconds, longer than anything healthy takes
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


def test_a_sender_with_another_tensor_makes_all_ranks_load(engine, sliced, endpoint):
    checkpoint = Qwen2ForCausalLM.from_pretrained(sliced)
    assert engine.ask("join", endpoint=endpoint + "-checkpoint", apply="load") is None
    [(_, before)] = send(engine, checkpoint, endpoint + "-checkpoint")  # the proof needs the checkpoint's weights
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


def test_the_example_trains_by_fsdp2_and_vllm_generates(sliced):
    example = Path(__file__).parents[3] / "examples" / "python" / "fsdp.py"
    done = subprocess.run([sys.executable, example, sliced], text=True, stdout=subprocess.PIPE, timeout=5 * PATIENCE, check=True,
                          env={**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
                               "VLLM_NO_USAGE_STATS": "1"})
    assert "version 30 continues 5 6 7 with 8 9 10 11" in done.stdout
