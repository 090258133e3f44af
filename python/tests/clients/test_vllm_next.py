"""The next vLLM, which has no build for CPUs: only its Python files are there (scripts/test-python --clients)."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture
def run(checkpoint, endpoint):
    """run(*command) runs a script of this folder in a process that finds the next vLLM."""
    files = os.environ.get("BASCULE_VLLM_NEXT")
    if not files:
        pytest.skip("BASCULE_VLLM_NEXT names no folder with vLLM's files")
    path = os.pathsep.join([files, str(HERE), os.environ.get("PYTHONPATH", "")])

    def run(*command):
        process = subprocess.Popen([sys.executable, *command, checkpoint, endpoint], start_new_session=True,
                                   env={**os.environ, "PYTHONPATH": path})
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    return run


def test_both_ends_fit_the_next_vllms_interfaces(run):
    run(HERE / "vllm_next.py")


def test_ranks_of_a_sharded_trainer_send_their_pieces_without_a_gather(run):
    run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", HERE / "vllm_next_rank.py")
