"""A real GRPOTrainer with a real `vllm serve`, which follows its endpoint."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes


@pytest.fixture
def server(checkpoint, endpoint):
    """The URL of a server that is starting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [Path(sys.executable).parent / "vllm", "serve", checkpoint, "--host", "127.0.0.1", "--port", str(port),
         "--weight-transfer-config", '{"backend":"bascule"}', "--logprobs-mode", "processed_logprobs",
         "--max-logprobs", "-1", "--enforce-eager", "--max-model-len", "64", "--dtype", "float32", "--max-num-seqs",
         "8", "--kv-cache-memory-bytes", str(1 << 26)],
        start_new_session=True,
        env={**os.environ, "BASCULE_ENDPOINT": endpoint, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1",
             "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"})
    yield f"http://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def test_an_unmodified_trainer_is_followed(server, checkpoint, endpoint):
    trainer = subprocess.run([sys.executable, HERE / "grpo_trainer.py", endpoint, checkpoint, server], text=True,
                             stdout=subprocess.PIPE, timeout=PATIENCE)
    assert trainer.returncode == 0
    said = json.loads(trainer.stdout.splitlines()[-1])
    assert said["steps"] == 2
    assert said["server"] == said["transformers"]
