import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    import tiny

    folder = tmp_path_factory.mktemp("checkpoint")
    tiny.save(folder)
    return str(folder)


@pytest.fixture
def model(checkpoint):
    from transformers import Qwen2ForCausalLM

    return Qwen2ForCausalLM.from_pretrained(checkpoint)


class VllmEngine:
    """A process with vLLM's LLM (vllm_engine.py), and all processes that it starts."""

    def __init__(self, environment, **options):
        self.process = subprocess.Popen(
            [sys.executable, HERE / "vllm_engine.py", json.dumps(options)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                 **environment})

    def started(self):
        assert self.answer() == "ready"
        return self

    def ask(self, what, **arguments):
        self.begin(what, **arguments)
        return self.answer()

    def begin(self, what, **arguments):
        self.process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "the engine has ended"
        return json.loads(line)

    def generate(self):
        import tiny

        return self.ask("generate", prompt=tiny.PROMPT, tokens=tiny.TOKENS)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # also its engine core and workers
        self.process.wait(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def start_engine():
    """start_engine(environment, **options of LLM) starts one; at the end, those that still run are killed."""
    pytest.importorskip("vllm")
    started = []

    def start(environment, **options):
        started.append(VllmEngine(environment, **options))
        return started[-1]

    yield start
    for engine in started:
        if engine.process.returncode is None:
            engine.kill()


class Server:
    """A server with vLLM's HTTP interface, at `url`."""

    url: str

    def get(self, path):
        """The status of a GET."""
        return self._open(urllib.request.Request(self.url + path))[0]

    def json(self, path):
        """The answer of a GET."""
        return json.loads(self._open(urllib.request.Request(self.url + path))[1])

    def models(self):
        """The names in GET /v1/models."""
        return [each["id"] for each in self.json("/v1/models")["data"]]

    def generate(self, **more):
        """The status and the greedy tokens, or the status and the error's text."""
        status, text = self._open(self._completion(**more))
        return status, json.loads(text)["choices"][0]["token_ids"] if status == HTTPStatus.OK else text

    def generate_with_probabilities(self, **more):
        """The greedy tokens and their log-probabilities. Raises what the server answers instead."""
        status, text = self._open(self._completion(logprobs=0, **more))
        assert status == HTTPStatus.OK, text
        [choice] = json.loads(text)["choices"]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    def stream(self, **more):
        """Yields the greedy tokens as they come."""
        with urllib.request.urlopen(self._completion(stream=True, **more), timeout=PATIENCE) as answer:
            for line in answer:
                event = line.decode().strip().removeprefix("data: ")
                if event not in ("", "[DONE]"):
                    yield from json.loads(event)["choices"][0]["token_ids"]

    def _completion(self, **more):
        import tiny

        body = {"prompt": tiny.PROMPT, "max_tokens": tiny.TOKENS, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True, **more}
        return urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(),
                                      {"Content-Type": "application/json"})

    def _open(self, request):
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


class VllmServer(Server):
    """A `vllm serve` that is starting, and all processes that it starts."""

    def __init__(self, environment, checkpoint, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [Path(sys.executable).parent / "vllm", "serve", checkpoint, "--host", "127.0.0.1", "--port", str(port),
             "--weight-transfer-config", '{"backend":"bascule"}', "--enforce-eager", "--max-model-len", "64", "--dtype",
             "float32", "--max-num-seqs", "8", "--kv-cache-memory-bytes", str(1 << 26), *arguments],
            start_new_session=True,
            env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                 "VLLM_CPU_OMP_THREADS_BIND": "nobind", **environment})

    def wait_until_up(self, seconds):
        deadline = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline
            try:
                return self.get("/health")
            except urllib.error.URLError:  # it does not listen yet
                time.sleep(0.2)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


@pytest.fixture
def serve(checkpoint):
    """serve(environment, *arguments of vllm serve) starts one; at the end they are killed."""
    yield from _serving(checkpoint)


@pytest.fixture(scope="module")
def serve_for_all(checkpoint):
    """serve() for all tests of a file."""
    yield from _serving(checkpoint)


def _serving(checkpoint):
    pytest.importorskip("vllm")
    started = []

    def start(environment, *arguments):
        started.append(VllmServer(environment, checkpoint, *arguments))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


class BasculeEngine(Server):
    """A `bascule-engine` that serves its checkpoint until the endpoint's first version has come."""

    def __init__(self, checkpoint, endpoint, *arguments):
        self.process = subprocess.Popen(
            [os.environ["BASCULE_ENGINE"], "--model", checkpoint, "--sync", endpoint, "--until-first", "checkpoint",
             "--listen", "127.0.0.1:0", "--threads", "1", "--cache-bytes", "8MiB", *arguments],
            text=True, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.url = line.split()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


@pytest.fixture
def bascule_engine(checkpoint, endpoint):
    """bascule_engine(*arguments) starts one that follows `endpoint`; at the end they are killed."""
    if "BASCULE_ENGINE" not in os.environ:
        pytest.skip("BASCULE_ENGINE is not set; scripts/test-python --clients builds the engine and sets it")
    started = []

    def start(*arguments):
        started.append(BasculeEngine(checkpoint, endpoint, *arguments))
        return started[-1]

    yield start
    for engine in started:
        engine.kill()
