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


def train(endpoint, checkpoint, server, adapted):
    subprocess.run([sys.executable, HERE / "async_grpo.py", endpoint, checkpoint, server.url, adapted], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("adapted", ["", "merged"])
def test_an_unmodified_trainer_sends_its_weights(server, checkpoint, endpoint, adapted):
    train(endpoint, checkpoint, server, adapted)


def test_an_unmodified_trainer_sends_its_adapter_alone(serve, checkpoint, endpoint):
    server = serve({"BASCULE_ADAPTERS": f"{endpoint}/adapters"}, "--enable-lora", "--max-lora-rank", "8", "--max-loras", "3")
    server.wait_until_up(PATIENCE)
    train(endpoint, checkpoint, server, "alone")
    left = server.models()
    train(endpoint, checkpoint, server, "alone")  # another run, which removes what the first one left
    assert server.models() == left == [checkpoint, "trl-policy-v3", "trl-policy-v4"]


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
