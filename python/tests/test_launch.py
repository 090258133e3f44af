"""Ranks from the variables of torchrun and srun."""

import os
import subprocess
import sys

import numpy
import pytest

import bascule

PATIENCE = 60
RANK = """
import sys
import bascule
ranks = bascule.launched_as()
with bascule.Receiver(sys.argv[1], worker=f"engine-{ranks['rank']}", group="engine", **ranks) as receiver:
    while receiver.status().version < 1:
        receiver.take(1, timeout=60) and receiver.finish()
    print(ranks)
    sys.stdin.read()  # a rank that leaves before the others have the version takes its group with it
"""


@pytest.fixture
def launched(monkeypatch):
    def launched(**variables):
        for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return bascule.launched_as()

    return launched


@pytest.mark.parametrize("variables, rank, ranks", [
    ({}, 0, 1), ({"RANK": "2", "WORLD_SIZE": "3"}, 2, 3), ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, 1, 2),
    ({"SLURM_PROCID": "0"}, 0, 1),  # in sbatch's own script
    ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}, 0, 2)])
def test_ranks_come_from_the_launcher(launched, variables, rank, ranks):
    assert launched(**variables) == {"rank": rank, "ranks": ranks}


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"},
                                       {"RANK": "-1", "WORLD_SIZE": "2"}, {"RANK": "a", "WORLD_SIZE": "2"}])
def test_variables_that_do_not_fit_are_refused(launched, variables):
    with pytest.raises(bascule.BasculeError, match="RANK and WORLD_SIZE: expected a rank and the number of ranks, as torchrun"):
        launched(**variables)


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")])
def test_ranks_of_an_engine_join_as_one_group(endpoint, names):
    with bascule.Sender(endpoint, expect_workers=["engine"]) as sender:
        sender.register_model({"w": numpy.ones(3, numpy.float32)})
        ranks = [subprocess.Popen([sys.executable, "-c", RANK, endpoint], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, env={**os.environ, names[0]: str(rank), names[1]: "2"})
                 for rank in range(2)]
        sender.wait_for_workers(2, PATIENCE)
        assert sender.send().complete
        assert [rank.communicate(timeout=PATIENCE)[0].strip() for rank in ranks] == [
            str({"rank": 0, "ranks": 2}), str({"rank": 1, "ranks": 2})]
