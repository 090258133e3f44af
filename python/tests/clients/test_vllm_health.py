"""A server whose engine got weights that do not load: its health, the requests that wait, and its recovery."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tiny

import bascule

pytest.importorskip("vllm")
PATIENCE = 300  # seconds, longer than anything healthy takes


@pytest.fixture
def server(checkpoint, endpoint):
    """The URL of a server that is starting."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [Path(sys.executable).parent / "vllm", "serve", checkpoint, "--host", "127.0.0.1", "--port", str(port),
         "--served-model-name", "tiny", "--weight-transfer-config", '{"backend":"bascule"}', "--enforce-eager",
         "--max-model-len", "64", "--dtype", "float32", "--max-num-seqs", "8", "--kv-cache-memory-bytes", str(1 << 26)],
        start_new_session=True,
        env={**os.environ, "BASCULE_ENDPOINT": endpoint, "BASCULE_STOP_LIMIT": "3", "HF_HUB_OFFLINE": "1",
             "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"})
    yield f"http://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def health(server):
    try:
        with urllib.request.urlopen(f"{server}/health", timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None  # not yet listening


def wait_for_health(server, status):
    until = time.monotonic() + PATIENCE
    while (found := health(server)) != status:
        assert time.monotonic() < until, found
        time.sleep(0.2)


def complete(server):
    """The choice of an answer."""
    request = urllib.request.Request(
        f"{server}/v1/completions", headers={"Content-Type": "application/json"},
        data=json.dumps({"model": "tiny", "prompt": tiny.PROMPT, "max_tokens": 4, "ignore_eos": True}).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)["choices"][0]


def test_a_server_without_weights_that_load_is_not_healthy_and_its_requests_end(server, model, endpoint):
    tensors = dict(model.named_parameters())
    wait_for_health(server, 200)
    assert complete(server)["finish_reason"] == "length"
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**tensors, "model.wrong": tensors["model.norm.weight"].detach().clone()})
        sender.wait_for_workers(1, PATIENCE)
        assert not sender.send().complete
        wait_for_health(server, 503)
        ended = []
        waiting = threading.Thread(target=lambda: ended.append(complete(server)))
        waiting.start()
        waiting.join(PATIENCE)
        assert ended[0]["finish_reason"] == "abort" and "weights could not be loaded" in ended[0]["stop_reason"]
        assert health(server) == 503
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        assert sender.send().complete
        wait_for_health(server, 200)
        assert complete(server)["finish_reason"] == "length"
