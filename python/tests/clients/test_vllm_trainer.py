"""A trainer that uses vLLM's trainer API sends through Bascule to a real vLLM, by vLLM's own client of its HTTP routes."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

import bascule

pytest.importorskip("vllm.distributed.weight_transfer.clients")
from vllm.distributed.weight_transfer import base  # noqa: E402
from vllm.distributed.weight_transfer.base import ModuleSource, ParamMeta, WeightSource  # noqa: E402
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient  # noqa: E402
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory  # noqa: E402

from bascule.vllm.trainer import BasculeTrainerEngine, BasculeTrainerInitInfo  # noqa: E402

HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture(scope="module")
def server(serve_for_all):
    """It follows no endpoint by itself."""
    server = serve_for_all({})
    server.wait_until_up(PATIENCE)
    return server


def trainer_init(endpoint, client, source, **fields):
    info = BasculeTrainerInitInfo(endpoint=endpoint, **{"rank": 0, **fields})
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)


def sends_versions(engine, server, model, begin=1):
    for version in range(begin, begin + 3):
        tiny.train(model, version)
        engine.send_weights()
        assert engine.sender.version == version
        assert server.generate() == (200, tiny.greedy(model))


def test_vllms_own_client_and_source_send_to_a_server(server, model, endpoint):
    engine = trainer_init(endpoint, HTTPVLLMWeightSyncClient(server.url), ModuleSource(model))
    try:
        sends_versions(engine, server, model)
    finally:
        engine.shutdown()


def test_a_server_that_follows_the_endpoint_is_driven_in_the_same_way(serve, model, endpoint):
    server = serve({"BASCULE_ENDPOINT": endpoint})
    server.wait_until_up(PATIENCE)
    engine = trainer_init(endpoint, HTTPVLLMWeightSyncClient(server.url), ModuleSource(model))
    try:
        sends_versions(engine, server, model)
    finally:
        engine.shutdown()
        server.kill()


def test_ranks_of_a_sharded_trainer_send_together(server, checkpoint, endpoint):
    """Of FSDP2: each rank iterates the source, whose gathers need all of them."""
    ranks = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                              HERE / "vllm_trainer_rank.py", checkpoint, endpoint, server.url], start_new_session=True)
    try:
        assert ranks.wait(PATIENCE) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(ranks.pid, signal.SIGKILL)


class Client:
    """Stands where the engine's client stands, in a test of what never gets there."""

    def __getattr__(self, name):
        raise AssertionError(f"{name}() was called")


class Failing(WeightSource):
    """Fails in the middle of a pass if `at` is not None."""

    def __init__(self, model, at=None):
        self.tensors, self.at, self.passed = dict(model.named_parameters()), at, 0

    def metadata(self):
        return [ParamMeta(name, each.dtype, tuple(each.shape)) for name, each in self.tensors.items()]

    def __iter__(self):
        for i, (name, each) in enumerate(self.tensors.items()):
            if i == self.at:
                raise RuntimeError("the gather failed")
            yield name, each
            self.passed += 1


def test_a_source_that_fails_leaves_the_engine_as_it_was(server, model, endpoint):
    source = Failing(model)
    engine = trainer_init(endpoint, HTTPVLLMWeightSyncClient(server.url), source)
    try:
        engine.send_weights()
        before = server.generate()
        source.at = 3
        with pytest.raises(RuntimeError, match="the gather failed"):
            engine.send_weights()
        assert server.generate() == before
        source.at = None
        tiny.train(model, 7)
        engine.send_weights()
        assert server.generate() == (200, tiny.greedy(model))
    finally:
        engine.shutdown()


def test_a_pass_is_finished_for_the_other_ranks_if_the_send_fails(model, endpoint):
    source = Failing(model)
    engine = BasculeTrainerEngine(client=Client(), source=source)
    engine.sender, engine._count = bascule.Sender(endpoint), len(source.tensors)
    with engine.sender, pytest.raises(bascule.BasculeError, match="no model is registered|register"):
        engine.send_weights()
    assert source.passed == len(source.tensors)


def test_what_cannot_be_sent_is_refused_before_anything_is_opened(model, endpoint, monkeypatch):
    with pytest.raises(bascule.BasculeError, match="expected a WeightSource"):
        trainer_init(endpoint, Client(), None)
    monkeypatch.delenv("BASCULE_ENDPOINT", raising=False)
    with pytest.raises(bascule.BasculeError, match="BASCULE_ENDPOINT is not set"):
        trainer_init(None, Client(), ModuleSource(model))

    class PartOnRank0(Failing):
        def held_names(self):
            return list(self.tensors)[1:]

    with pytest.raises(bascule.BasculeError, match="rank 0 does not own 1 of the source's .* model.embed_tokens.weight") as refused:
        trainer_init(endpoint, Client(), PartOnRank0(model))
    assert refused.value.code == "UNIMPLEMENTED"
    trainer_init(endpoint, Client(), ModuleSource(model), rank=1).shutdown()  # opens nothing


def test_the_signatures_are_those_of_vllms_classes():
    ours, vllms = BasculeTrainerEngine, base.TrainerWeightTransferEngine
    for name in ("trainer_init", "send_weights", "shutdown"):
        assert (list(inspect.signature(getattr(ours, name)).parameters)
                == list(inspect.signature(getattr(vllms, name)).parameters)), name
