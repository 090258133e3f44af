import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 120  # seconds, longer than anything healthy takes


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
