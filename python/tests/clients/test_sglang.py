"""SGLang takes versions and adapters: with SGLang's own code for them, in a server with two ranks and no kernels."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tiny
import torch

import bascule

pytest.importorskip("sglang")
peft = pytest.importorskip("peft")
import bascule.sglang  # noqa: E402

HERE = Path(__file__).parent
PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine


class Rank0:
    """The server's HTTP interface."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, route, body=None):
        with urllib.request.urlopen(f"{self.url}/{route}", body and json.dumps(body).encode(), timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def state(self):
        return self.ask("state")


@pytest.fixture(scope="module")
def sglang():
    with socket.socket() as free, socket.socket() as other:
        for each in (free, other):
            each.bind(("127.0.0.1", 0))
        port, meeting = free.getsockname()[1], other.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, HERE / "sglang_server.py", str(port)],
                              env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                   "MASTER_PORT": str(meeting)}) for rank in range(2)]
    server, deadline = Rank0(port), time.monotonic() + PATIENCE
    try:
        while True:
            assert all(each.poll() is None for each in ranks) and time.monotonic() < deadline
            with contextlib.suppress(urllib.error.URLError):
                server.state()
                break
            time.sleep(0.2)
        yield server
    finally:
        for each in ranks:
            each.kill()
            each.wait(PATIENCE)


@pytest.fixture
def sender(endpoint):
    with bascule.Sender(endpoint) as sender:
        yield sender


def digests(model):
    return {name: tiny.digest(each) for name, each in model.state_dict().items()}


def test_each_version_is_loaded_on_all_ranks(sglang, sender, model):
    sender.register_model(model)
    server = bascule.sglang.Server(sglang.url)
    load = ["begin_weight_update", "update_weights_from_tensor", "end_weight_update"]
    for version in (1, 2, 3):
        tiny.train(model, version)
        report = server.send(sender)
        assert report.complete and len(report.workers) == 2
        state = sglang.state()
        assert state["weights"] == digests(model)
        assert (state["version"], state["paused"]) == (str(version), False)
        update = ["pause_generation", *load, "continue_generation"]
        assert state["calls"] == (["server_info", *update, *update] if version == 1 else update)


def test_a_load_that_fails_is_in_the_report_and_the_server_stays_paused(sglang, sender, model):
    tensors = {name: each.detach().clone() for name, each in model.state_dict().items()}
    sender.register_model({**tensors, "refused": torch.zeros(3)})
    server = bascule.sglang.Server(sglang.url)
    with pytest.raises(bascule.BasculeError, match="there is no parameter named 'refused'"):
        server.send(sender)
    assert sglang.state()["paused"]
    sender.close()
    with bascule.Sender(sender._endpoint) as again:
        again.register_model(model)
        bascule.sglang.Server(sglang.url).send(again)
    state = sglang.state()
    assert not state["paused"] and state["weights"].items() >= digests(model).items()


def test_a_version_that_does_not_come_ends_nothing(sglang, endpoint, caplog):
    bascule.sglang.load(None, [bascule.sglang.request(endpoint, 5, timeout=0.1)])
    assert "were not updated as the trainer asked" in caplog.text
    bascule.sglang._receivers.popitem()[1].close()


def test_a_server_without_the_loader_is_refused(sglang, sender, model, monkeypatch):
    sender.register_model(model)
    server = bascule.sglang.Server(sglang.url)
    monkeypatch.setattr(bascule.sglang, "_LOADER", "another.loader")
    with pytest.raises(bascule.BasculeError, match="--custom-weight-loader another.loader"):
        server.send(sender)


def adapted(model, **options):
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], **options})
    model = peft.get_peft_model(model, config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_an_adapter_has_its_scale_folded_in(sglang, model):
    model, server = adapted(model, use_rslora=True), bascule.sglang.Server(sglang.url)
    for _ in range(2):  # the second one replaces the first
        torch.nn.init.normal_(model.base_model.model.model.layers[0].self_attn.q_proj.lora_B.default.weight)
        server.load_adapter(model, served_as="math")
        expected = {}
        for name, tensor in peft.get_peft_model_state_dict(model).items():
            expected[name] = tiny.digest(8 * tensor if "lora_B" in name else tensor)  # 16 / sqrt(4)
        assert sglang.state()["adapters"]["math"] == [1.0, expected]


def test_a_tensor_that_changed_on_the_way_is_refused(sglang, model):
    body = bascule.sglang.adapter_request(adapted(model), served_as="broken", ranks=2)
    name = next(iter(body["expected_checksums"]))
    body["expected_checksums"][name] = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(urllib.error.HTTPError) as refused:
        sglang.ask("load_lora_adapter_from_tensors", body)
    assert f"1 value-diff ['{name}']" in refused.value.read().decode()


@pytest.mark.parametrize(("options", "why"), [
    ({"rank_pattern": {"layers.0.*q_proj": 2}}, "several ranks"), ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"use_dora": True}, "use_dora")])
def test_an_adapter_that_sglang_would_compute_wrongly_is_refused(model, options, why):
    with pytest.raises(bascule.BasculeError, match=why):
        bascule.sglang.adapter_request(adapted(model, **options))
