"""The trainer's side of bascule.sglang, with a server that has SGLang's routes but not SGLang (sglang_routes.py)."""

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch

import bascule
import bascule.sglang

PATIENCE = 120  # seconds, longer than anything healthy takes


class Process:
    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, Path(__file__).with_name("sglang_routes.py"), str(self.port)])
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None and time.monotonic() < deadline
            with contextlib.suppress(urllib.error.URLError):
                return self.ask("state")
            time.sleep(0.1)

    def ask(self, route, /, **body):
        with urllib.request.urlopen(f"{self.url}/{route}", json.dumps(body).encode(), timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def process():
    started = Process()
    yield started
    started.kill()


@pytest.fixture
def server(process):
    yield process
    process.ask("trouble")


@pytest.fixture
def sender(endpoint):
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"weight": torch.zeros(3)})
        yield sender


def refused(code, text, call, *arguments, **options):
    with pytest.raises(bascule.BasculeError, match=text) as error:
        call(*arguments, **options)
    assert error.value.code == code


def test_a_server_that_is_started_again_takes_the_place_of_the_old_one(server, endpoint):
    weight = torch.zeros(3)
    with bascule.Sender(f"{endpoint}?flip_timeout=1s") as sender:
        sender.register_model({"weight": weight})
        ours = bascule.sglang.Server(server.url, timeout=PATIENCE)
        for value in (1, 2):
            weight.fill_(value)
            report = ours.send(sender)
            assert [each.worker for each in report.workers] == [f"sglang-127.0.0.1:{server.port}-0"]
        server.kill()
        refused("UNAVAILABLE", "Connection refused", ours.send, sender)
        server.start()
        for value in (3, 4):
            weight.fill_(value)
            report = ours.send(sender)
            assert report.complete and len(report.workers) == 1
            assert server.ask("state") == {"weights": {"weight": [value] * 3}, "paused": False}


def test_a_rank_that_was_evicted_joins_again_and_the_server_is_paused_until_then(server, endpoint):
    with bascule.Sender(f"{endpoint}?flip_timeout=1s") as sender:
        sender.register_model({"weight": torch.ones(3)})
        ours = bascule.sglang.Server(server.url, timeout=PATIENCE)
        ours.send(sender)
        for route in ("begin_weight_update", "update_weights_from_tensor", "end_weight_update"):
            server.ask("trouble", route=route, answer=None)
            refused("UNAVAILABLE", f"/{route}: Remote end closed", ours.send, sender)
            assert server.ask("state")["paused"]
        with bascule.Sender(f"{endpoint}-2") as other:
            other.register_model({"weight": torch.ones(3)})
            refused("UNAVAILABLE", "/end_weight_update: Remote end closed", ours.send, other)
            assert server.ask("state")["paused"]
        server.ask("trouble")
        assert ours.send(sender).complete
        assert server.ask("state") == {"weights": {"weight": [1] * 3}, "paused": False}


@pytest.mark.parametrize(("route", "answer", "text"), [
    ("server_info", "<html>", "expected an answer of SGLang, which is an object in JSON, found '<html>'"),
    ("server_info", "[]", r"an object in JSON, found '\[\]'"),
    ("server_info", '{"version": 1}', "expected SGLang's, which has tp_size, found {'version': 1}"),
    ("pause_generation", "", "/pause_generation: expected an answer of SGLang"),
    ("server_info", '{"tp_size": 1}', "was not started for Bascule; start it with --custom-weight-loader")])
def test_an_answer_that_is_not_sglangs_is_shown(server, sender, route, answer, text):
    server.ask("trouble", route=route, answer=answer)
    with pytest.raises(bascule.BasculeError, match=text):
        bascule.sglang.Server(server.url, timeout=PATIENCE).send(sender)


@pytest.mark.parametrize("url", ["", "localhost", "127.0.0.1:30000", "http://", "http://a:b", "http://a b", "ftp://a",
                                 "http://[a"])
def test_a_url_that_cannot_be_is_refused(url):
    refused("INVALID_ARGUMENT", "url: expected a URL such as http://127.0.0.1:30000, found", bascule.sglang.Server, url)


@pytest.mark.parametrize(("options", "text"), [
    ({"key": 5}, "key: expected a str"), ({"key": "a\nb"}, "key: expected printable"), ({"ranks": 0}, "ranks: expected 1"),
    ({"timeout": "x"}, "timeout: expected seconds"), ({"timeout": 0}, "timeout: expected more than 0"),
    ({"pause": "stop"}, "pause: expected")])
def test_wrong_arguments_are_refused_by_name(options, text):
    refused("INVALID_ARGUMENT", text, bascule.sglang.Server, "http://127.0.0.1:30000", **options)


def test_an_infinite_timeout_waits(server, sender):
    assert bascule.sglang.Server(server.url, timeout=float("inf")).send(sender).complete
