import json
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE = 60  # seconds, longer than anything healthy takes
HERE = Path(__file__).parent


@pytest.fixture
def endpoint(tmp_path):
    return f"shm://{tmp_path}/endpoint"


class Engine:
    """A process with a receiver, which a test commands (engine.py)."""

    def __init__(self, endpoint, worker="engine-0", **options):
        self.process = subprocess.Popen([sys.executable, HERE / "engine.py"], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.ask("join", endpoint=endpoint, worker=worker, **options)

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

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def engines():
    """engines(endpoint, worker) starts one; at the end, those that still run are killed."""
    started = []

    def start(*arguments, **options):
        started.append(Engine(*arguments, **options))
        return started[-1]

    yield start
    for engine in started:
        if engine.process.poll() is None:
            engine.kill()
