"""A real GRPOTrainer with a real `vllm serve`, which follows its endpoint."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes


def test_an_unmodified_trainer_is_followed(serve, checkpoint, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint}, "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1")
    trainer = subprocess.run([sys.executable, HERE / "grpo_trainer.py", endpoint, checkpoint, server.url], text=True,
                             stdout=subprocess.PIPE, timeout=PATIENCE)
    assert trainer.returncode == 0
    said = json.loads(trainer.stdout.splitlines()[-1])
    assert said["steps"] == 2
    assert said["server"] == said["transformers"]
