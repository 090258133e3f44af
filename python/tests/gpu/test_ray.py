"""Ray actors that share a GPU by fractions, or find it by its UUID, or have none."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

ray = pytest.importorskip("ray")
import bascule.ray

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
PATIENCE = 120  # seconds, longer than anything healthy takes
NAME = "gpu"
EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "ray_grpo.py"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(address="local", log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


@ray.remote(num_gpus=0.4, num_cpus=0)
class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(1000, 300, device="cuda")
        self.sender = bascule.ray.Sender(NAME)
        self.sender.register_model(self.model)

    def send(self, workers, value):
        with torch.no_grad():
            self.model.weight.fill_(value)
        self.sender.wait_for_workers(workers, PATIENCE)
        return self.sender.send().complete

    def sees(self):
        return bascule.ray._gpus()


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self):
        self.receiver = bascule.ray.Receiver(NAME, timeout=PATIENCE)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        while True:
            self.receiver.commit()
            time.sleep(0.001)

    def serves(self):
        """All values of the weight, its device, and the path by which it came."""
        weight = self.receiver.weights()["weight"]
        return weight.unique().tolist(), weight.device.type, self.receiver.status().path

    def sees(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()


def test_each_engine_gets_the_weights_in_its_own_way():
    trainer = Trainer.remote()
    (gpu,) = ray.get(trainer.sees.remote(), timeout=PATIENCE)
    assert re.fullmatch("GPU-[0-9a-f-]{36}", gpu)
    assert bascule.ray.find(NAME).startswith("auto:///")
    by_fraction = Engine.options(num_gpus=0.3).remote()
    by_uuid = Engine.options(num_gpus=0.3, **bascule.ray.beside(NAME)).remote()
    by_uuid_alone = Engine.options(**bascule.ray.beside(NAME)).remote()
    without = Engine.remote()
    for value in (1, 2, 3):
        assert ray.get(trainer.send.remote(4, value), timeout=PATIENCE)
        for engine in (by_fraction, by_uuid, by_uuid_alone):
            assert ray.get(engine.serves.remote(), timeout=PATIENCE) == ([value], "cuda", "in place")
        assert ray.get(without.serves.remote(), timeout=PATIENCE) == ([value], "cpu", "mirror")
    for engine in (by_uuid, by_uuid_alone):
        assert ray.get(engine.sees.remote(), timeout=PATIENCE) == (gpu, 1)


def test_the_example():
    ended = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=2 * PATIENCE,
                           env={**os.environ, "RAY_ADDRESS": "local"})
    assert ended.returncode == 0, ended.stderr
    shares = [float(line.split()[-1].rstrip("%")) for line in ended.stdout.splitlines() if line.startswith("step")]
    assert shares[0] < 20 and shares[-1] > 80, ended.stdout
