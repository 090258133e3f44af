"""A real GRPOTrainer with a real `vllm serve`, which follows its endpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
HERE = Path(__file__).parent
PATIENCE = 900  # seconds, longer than anything healthy takes on a busy machine


LOGPROBS = ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]


def run(program, *arguments):
    trainer = subprocess.run([sys.executable, HERE / program, *arguments], text=True, stdout=subprocess.PIPE, timeout=PATIENCE)
    assert trainer.returncode == 0
    return json.loads(trainer.stdout.splitlines()[-1])


def test_an_unmodified_trainer_is_followed(serve, checkpoint, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint}, *LOGPROBS)
    said = run("grpo_trainer.py", endpoint, checkpoint, server.url)
    assert said["steps"] == 2
    assert said["server"] == said["transformers"]


def assert_served(said):
    """Each version's tokens and log-probabilities are the trainer's, and not the base model's."""
    for version in said["versions"]:
        assert version["tokens"] == version["transformers"]
        assert version["server"] == pytest.approx(version["trainer"], abs=1e-3)
        assert version["server"] != pytest.approx(version["base"], abs=0.1)
    assert said["steps"] == 2 and said["base_unchanged"]


def test_a_trainer_s_adapter_is_merged_while_it_is_sent(serve, checkpoint, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint}, *LOGPROBS)
    said = run("grpo_adapter.py", endpoint, checkpoint, server.url)
    assert_served(said)
    assert said["model"] == checkpoint
    assert sum("merged into the base model, not alone: the server has no adapter default" in line for line in said["log"]) == 1


def test_a_trainer_s_adapter_is_sent_alone_and_requests_name_it(serve, checkpoint, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint, "BASCULE_ADAPTERS": f"default={endpoint}/adapters/default"}, *LOGPROBS,
                   "--enable-lora", "--max-lora-rank", "8", "--max-loras", "2")
    said = run("grpo_adapter.py", endpoint, checkpoint, server.url)
    assert_served(said)
    assert said["model"] == "default"
    assert sum("is sent alone to" in line for line in said["log"]) == 1
