"""Each text in docs/guide/troubleshooting.md is one that the package produces."""

import logging
import os
import pickle
import re
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy
import pytest

import bascule
from bascule.vllm import follow

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "troubleshooting.md"
PATIENCE = 60
TEXTS = [text for text in re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)]


def weights(size=4, name="w"):
    return {name: numpy.zeros(size, numpy.float32)}


@contextmanager
def registered(endpoint, *, workers=(), **options):
    """A sender of one tensor, and these workers' receivers, which have joined."""
    with bascule.Sender(endpoint, **options) as sender:
        sender.register_model(weights())
        receivers = [bascule.Receiver(endpoint, worker=worker) for worker in workers]
        sender.wait_for_workers(len(workers), PATIENCE)
        yield sender, *receivers
        for receiver in receivers:
            receiver.close()


def a_second_sender(endpoint):
    with bascule.Sender(endpoint):
        bascule.Sender(endpoint)


def an_open_folder(endpoint):
    folder = Path(endpoint.removeprefix("shm://"))
    folder.mkdir()
    folder.chmod(0o777)
    bascule.Sender(endpoint)


def half_a_launcher(endpoint):
    os.environ["RANK"] = "1"
    try:
        bascule.launched_as()
    finally:
        del os.environ["RANK"]


def a_forked_child(endpoint):
    with registered(endpoint) as (sender,):
        ours, theirs = os.pipe()
        if not os.fork():
            try:
                sender.send()
            except BaseException as error:
                os.write(theirs, str(error).encode())
            os._exit(0)
        os.wait()
        return os.read(ours, 10_000).decode()


def a_pickle(endpoint):
    with bascule.Sender(endpoint) as sender:
        pickle.dumps(sender)


def nothing_registered(endpoint):
    with bascule.Sender(endpoint) as sender:
        sender.send()


def registering(model):
    def register(endpoint):
        with bascule.Sender(endpoint) as sender:
            sender.register_model(model)

    return register


def another_shape(endpoint):
    model = weights()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        model.update(weights(5))
        sender.send()


def half_a_stream(endpoint):
    with bascule.Sender(endpoint) as sender:
        sender.register_model([bascule.TensorSpec(name, "float32", (4,)) for name in "vw"])
        sender.stream(weights().items())


def joining(count, *workers, **options):
    """Waits for `count` workers of these names."""
    def join(endpoint):
        with registered(endpoint) as (sender,):
            receivers = [bascule.Receiver(endpoint, worker=worker, **options) for worker in workers]
            try:
                sender.wait_for_workers(count, timeout=1)
            finally:
                for receiver in receivers:
                    receiver.close()

    return join


def no_trainer(endpoint):
    with bascule.Receiver(endpoint, worker="a") as receiver:
        receiver.wait_ready(timeout=0.1)


def an_engine_of_another_backend(endpoint):
    parallel = SimpleNamespace(worker_extension_cls="")
    core = SimpleNamespace(vllm_config=SimpleNamespace(weight_transfer_config=None, parallel_config=parallel))
    lines, ran = [], []
    with mock.patch.dict(os.environ, BASCULE_ENDPOINT=endpoint), \
            mock.patch.object(logging.getLogger("vllm.plugins.bascule"), "warning", lines.append):
        follow._followed(ran.append)(core)
    assert ran == [core]
    return lines[0]


def no_worker(endpoint):
    with registered(endpoint) as (sender,):
        return sender.send().why_incomplete


def an_engine_that_does_not_commit(endpoint):
    with registered(f"{endpoint}?flip_timeout=100ms", workers="a") as (sender, _):
        return sender.send().why_incomplete


def a_loader_that_fails(endpoint):
    with registered(endpoint, workers="a") as (sender, receiver):
        sender.send_async()
        assert receiver.take(timeout=PATIENCE) == 1
        receiver.finish("out of memory")
        return sender.wait_async(PATIENCE).why_incomplete


def an_unknown_worker(endpoint):
    with registered(endpoint, workers="a") as (sender, _):
        sender.send(worker_ids=["b"])


def no_send(endpoint):
    with registered(endpoint) as (sender,):
        sender.wait_async()


def a_closed_sender(endpoint):
    sender = bascule.Sender(endpoint)
    sender.close()
    sender.send()


CASES = [
    lambda endpoint: bascule.Sender("/run/grpo"), lambda endpoint: bascule.Sender("shmem:///run/grpo"),
    lambda endpoint: bascule.Sender(f"{endpoint}?slot=2"), a_second_sender, an_open_folder,
    lambda endpoint: bascule.Receiver("auto://127.0.0.1:29500", worker="a"), lambda endpoint: bascule.Sender(endpoint, sharded=True),
    half_a_launcher, a_forked_child, a_pickle,
    nothing_registered, registering({"w": numpy.zeros(3, numpy.complex128)}), registering(iter(weights())), another_shape,
    half_a_stream,
    joining(1), joining(1, "a", targets=weights(5)), joining(1, "a", targets=weights(name="v")), joining(2, "a", "a"), no_trainer,
    an_engine_of_another_backend, no_worker, an_engine_that_does_not_commit, a_loader_that_fails, an_unknown_worker, no_send, a_closed_sender,
]


@pytest.mark.parametrize("text, produce", list(zip(TEXTS, CASES)), ids=TEXTS[:len(CASES)])
def test_each_text_of_the_page_is_produced(endpoint, monkeypatch, text, produce):
    for name in ("BASCULE_TOKEN", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    try:
        found = produce(endpoint)
    except bascule.BasculeError as error:
        found = str(error)
    if "TOKEN" in text and "this build has no CUDA" in found:
        pytest.skip("an endpoint over TCP needs a build with CUDA")
    assert re.search(".*".join(map(re.escape, text.split("…"))), str(found)), found


def test_the_page_has_a_text_for_each_case():
    assert len(TEXTS) == len(CASES)
