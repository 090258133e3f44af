"""bascule-train and bascule-engine with the API server of Atropos and an environment on its base class, all as processes.

Needs a release build of the pair.
"""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("atroposlib")

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS, DEMO = ROOT / "build/release/bin", ROOT / "trainer_ref/demo"
pytestmark = pytest.mark.skipif(not (PROGRAMS / "bascule-train").exists(), reason="bascule-train is not built")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def start(tmp_path):
    """Starts programs that end with the test."""
    with contextlib.ExitStack() as programs:
        def start(name, *command):
            log = open(tmp_path / f"{name}.log", "w")
            program = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env={**os.environ, "MODEL": str(DEMO)})
            programs.callback(program.wait)
            programs.callback(program.kill)
            return program

        yield start


def wait_for(url):
    until = time.monotonic() + 120
    while True:
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except OSError:
            assert time.monotonic() < until, f"{url} does not answer"
            time.sleep(0.1)


on_gpu = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs a GPU")


@pytest.mark.parametrize("kind", ["shm", "adapter", pytest.param("single copy on a GPU", marks=on_gpu)])
def test_the_pair_learns_from_an_environment_on_its_base_class(start, tmp_path, kind):
    lora, gpu = kind == "adapter", kind.endswith("GPU")
    api, engine = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    sync, out = f"cuda-ipc://{tmp_path}/sync?slots=1" if gpu else f"shm://{tmp_path}/sync", tmp_path / "out"
    device = ["--device", "cuda:0" if gpu else "cpu"]
    start("api", shutil.which("run-api", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"), "--host", "127.0.0.1", "--port", api.rpartition(":")[2])
    follows = ["--adapter", f"policy={sync}", "--active-adapter", "policy"] if lora else ["--sync", sync]
    start("engine", PROGRAMS / "bascule-engine", "--model", DEMO, *follows, *device, "--threads", 1, "--listen", engine[len("http://"):])
    start("environment", sys.executable, ROOT / "examples/python/atropos_sums.py", "serve",
          "--env.rollout_server_url", api, "--openai.base_url", f"{engine}/v1")
    wait_for(f"{api}/info")
    wait_for(f"{engine}/version")
    trainer = start("trainer", PROGRAMS / "bascule-train", "--rollouts", f"atropos:{api}", "--model", DEMO, "--sync", sync,
                    "--engines", engine, "--prompts-per-step", 32, "--group-size", 8, "--max-tokens", 10, "--threads", 1, *device,
                    "--learning-rate", "4e-3" if lora else "3e-4", *(["--lora-rank", 8] if lora else []),
                    "--steps", 40, "--out", out)
    assert trainer.wait(timeout=600) == 0, (tmp_path / "trainer.log").read_text()
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()][1:]
    rewards = [step["reward_mean"] for step in steps]
    assert len(rewards) == 40
    assert sum(rewards[-8:]) / 8 > sum(rewards[:8]) / 8 + (0.02 if lora else 0.1), rewards
    assert steps[0]["importance"]["mean"] == pytest.approx(1, abs=1e-3), "the engine's log-probabilities are the trainer's"
    status = json.loads(wait_for(f"{api}/status"))
    assert status["current_step"] >= 40, "the server counts the trainer's steps"
