"""TRL's asynchronous trainers with a real `vllm serve`, on a CPU: everything but a training step, whose kernels need a GPU."""

import contextlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("trl.experimental.async_grpo")
HERE = Path(__file__).parent
PATIENCE = 900  # seconds, longer than anything healthy takes on a busy machine


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


@contextlib.contextmanager
def plain_server():
    """A server that follows no endpoint: its URL, and the bodies of what was posted."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self):
            self.answer({"data": [{"id": "base"}], "world_size": 1})

        def do_POST(self):
            posted.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.answer({})

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


@pytest.mark.parametrize("config, listen, why", [
    ({}, False, "start vLLM with --enable-lora and BASCULE_ADAPTERS="), ({"use_dora": True}, False, "use_dora"),
    ({}, True, "reached over TCP")], ids=["not followed", "dora", "tcp"])
def test_an_adapter_that_cannot_be_sent_alone_is_saved_by_trl(endpoint, tmp_path, model, caplog, config, listen, why):
    import peft
    from accelerate import Accelerator

    import bascule.trl

    bascule.trl.install(endpoint + ("?listen=127.0.0.1:0" if listen else ""))
    from trl.experimental.async_grpo import async_grpo_trainer as trainer

    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], **config))
    with plain_server() as (url, posted):
        client = trainer.VLLMClient(url)
        for version in (1, 2):
            folder = tmp_path / f"trl-policy-v{version}"
            trainer.save_lora_adapter(adapted, Accelerator(cpu=True), "default", str(folder))
            client.load_lora_adapter(folder.name, str(folder))
            assert posted.pop()[1] == {"lora_name": folder.name, "lora_path": str(folder), "load_inplace": False}
            assert (folder / "adapter_model.safetensors").exists()
        client.unload_lora_adapter("trl-policy-v1")
        assert posted == [("/v1/unload_lora_adapter", {"lora_name": "trl-policy-v1"})]
    assert caplog.text.count("Bascule does not send it") == 1 and why in caplog.text
    left = Path(endpoint.removeprefix("shm://"), "adapters")
    assert not left.exists() or not list(left.iterdir())
