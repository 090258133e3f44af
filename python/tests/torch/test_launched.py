"""Ranks of a sharded trainer as torchrun and srun start them, by the lines of docs/guide/sharded.md."""

import os
import socket
import subprocess
import sys

import pytest
import torch

import bascule

PATIENCE = 120
TRAINER = """
import os
import sys
import bascule
import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

endpoint, port = sys.argv[1:]
ranks = bascule.launched_as()
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", port)
distributed.init_process_group("gloo", rank=ranks["rank"], world_size=ranks["ranks"])
torch.manual_seed(3)
model = fully_shard(torch.nn.Linear(5, 7), mesh=distributed.init_device_mesh("cpu", (ranks["ranks"],)))
with bascule.Sender(endpoint, sharded=True) as sender:
    sender.register_model(model)
    if ranks["rank"] == 0:
        sender.wait_for_workers(1)
    assert sender.send(step=1).complete
distributed.destroy_process_group()
"""


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_the_ranks_of_a_launcher_send_one_version(endpoint, tmp_path, launcher):
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        command = [sys.executable, str(script), endpoint, str(free.getsockname()[1])]
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    with bascule.Receiver(endpoint, worker="engine-0") as receiver:
        if launcher == "torchrun":
            command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            ranks = [subprocess.Popen(command, env=clean)]
        else:
            ranks = [subprocess.Popen(command, env={**clean, "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2"})
                     for rank in range(2)]
        assert receiver.take(timeout=PATIENCE) == 1
        torch.manual_seed(3)
        expected = torch.nn.Linear(5, 7)
        assert all(torch.equal(receiver.weights()[name], each) for name, each in expected.named_parameters())
        receiver.finish()
        assert [rank.wait(PATIENCE) for rank in ranks] == [0] * len(ranks)
