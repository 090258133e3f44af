"""TRL's asynchronous trainers with a real `vllm serve`, on a CPU: everything but a training step, whose kernels need a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl.experimental.async_grpo")
HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes


@pytest.fixture(scope="module")
def server(serve_for_all):
    """It follows no endpoint by itself."""
    server = serve_for_all({})
    server.wait_until_up(PATIENCE)
    return server


@pytest.mark.parametrize("peft", ["", "peft"])
def test_an_unmodified_trainer_sends_its_weights(server, checkpoint, endpoint, peft):
    subprocess.run([sys.executable, HERE / "async_grpo.py", endpoint, checkpoint, server.url, peft], check=True, timeout=PATIENCE)


def test_a_server_for_other_backends_is_refused_before_anything_is_opened(endpoint):
    import bascule
    from bascule._trl_async import AsyncWeights

    class Server:
        server_url = "http://127.0.0.1:1"

        def wait_for_server_ready(self):
            pass

        def get_server_info(self):
            return {"weight_transfer_config": {"backend": "nccl"}}

    client = AsyncWeights(Server(), {"names": ["w"], "dtype_names": ["float32"], "shapes": [[2]]})
    with pytest.raises(bascule.BasculeError, match="does not take weights from Bascule; start it with"):
        client.init_weight_transfer()
    with pytest.raises(bascule.BasculeError, match=r"call init_weight_transfer\(\) first"):
        client.send_weights(iter([]))
    client.destroy()
