"""Unmodified clients of vLLM's server drive a real bascule-engine: vLLM's own client, and the clients of TRL's trainers."""

import threading

import pytest
import tiny

import bascule

pytest.importorskip("trl")
pytest.importorskip("vllm.distributed.weight_transfer.clients")
import requests  # noqa: E402
from test_trl import run  # noqa: E402
from trl.generation import vllm_client  # noqa: E402
from vllm.distributed.weight_transfer.base import ModuleSource  # noqa: E402
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient  # noqa: E402
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory  # noqa: E402

import bascule.trl  # noqa: E402
from bascule.vllm.trainer import BasculeTrainerInitInfo  # noqa: E402

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


def test_vllms_own_client_and_trainer_api_send_to_the_engine(bascule_engine, model, endpoint):
    engine, client = bascule_engine(), None
    assert engine.generate() == (200, tiny.greedy(model)), "its checkpoint's"
    client = HTTPVLLMWeightSyncClient(engine.url)
    trainer = WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint=endpoint, rank=0), client=client,
                                                        source=ModuleSource(model))
    try:
        for version in (1, 2, 3):
            tiny.train(model, version)
            trainer.send_weights()
            assert engine.json("/weight_info")["weight_version"] == str(version)
            assert engine.generate() == (200, tiny.greedy(model))
        client.finish_weight_update("step-3")
        assert engine.json("/weight_info")["weight_version"] == "step-3"
        client.shutdown_weight_transfer_engine()
    finally:
        trainer.shutdown()


@pytest.mark.parametrize("call", ["init", "update"])
def test_vllms_own_client_is_told_why_nccl_is_refused(bascule_engine, call):
    client = HTTPVLLMWeightSyncClient(bascule_engine().url)
    with pytest.raises(requests.HTTPError) as error:
        if call == "init":
            client.init_weight_transfer_engine({"master_address": "h", "master_port": 1, "rank_offset": 1, "world_size": 2})
        else:
            client.update_weights({"names": ["a"], "dtype_names": ["float32"], "shapes": [[1]]})
    assert error.value.response.status_code == 400
    assert "of vLLM's backend nccl" in error.value.response.text and "bascule.trl.install(" in error.value.response.text


def test_trls_client_sends_to_the_engine_and_generates(bascule_engine, model, endpoint):
    client = bascule.trl.install(endpoint)(base_url=bascule_engine().url, connection_timeout=PATIENCE)
    client.init_communicator()
    assert client.get_server_info()["weight_transfer_config"]["endpoint"] == endpoint
    for version in (1, 2):
        tiny.train(model, version)
        client.update_model_params(model)
        client.reset_prefix_cache()
        said = client.generate([tiny.PROMPT] * 2, temperature=0.0, max_tokens=tiny.TOKENS, logprobs=1,
                               generation_kwargs={"ignore_eos": True})
        assert said["completion_ids"] == [tiny.greedy(model)] * 2
        assert said["prompt_ids"] == [tiny.PROMPT] * 2
        assert [[ids[0] for ids in each] for each in said["logprob_token_ids"]] == said["completion_ids"]
    client.close_communicator()


def test_trls_client_without_bascule_is_told_what_to_call(bascule_engine, endpoint):
    original = next(each for each in vllm_client.VLLMClient.__mro__ if each.__name__ == "VLLMClient")
    client = original(base_url=bascule_engine().url, connection_timeout=PATIENCE)
    client.communicator = None
    with pytest.raises(Exception, match="Request failed: 400.*call bascule.trl.install"):
        client._post(f"{client.base_url}/init_weight_transfer_engine", json={"init_info": {"master_address": "h"}})


def test_an_unmodified_trainer_of_trl_is_followed(bascule_engine, checkpoint, endpoint):
    engine = bascule_engine("--logprobs-mode", "processed")
    said = run("grpo_trainer.py", endpoint, checkpoint, engine.url)
    assert said["steps"] == 2
    assert said["server"] == said["transformers"]
    assert engine.json("/weight_info")["version"] >= 3


def test_trls_asynchronous_client_pauses_updates_and_resumes(bascule_engine, model, endpoint):
    from accelerate import PartialState
    from bascule._trl_async import AsyncWeights
    from trl.experimental.async_grpo.vllm_client import VLLMClient

    PartialState()  # the client's log needs it; a trainer has one

    class Weights(AsyncWeights):
        bascule_endpoint, bascule_workers, bascule_timeout = endpoint, None, PATIENCE

    engine = bascule_engine()
    named = dict(model.named_parameters())
    weights = Weights(VLLMClient(engine.url), {"names": list(named), "dtype_names": ["float32"] * len(named),
                                               "shapes": [list(each.shape) for each in named.values()]})
    assert weights.vllm.get_dtype() == "torch.float32"
    weights.init_weight_transfer()
    try:
        tiny.train(model, 1)
        weights.pause()
        assert engine.json("/is_paused") == {"is_paused": True}
        answers = []
        waits = threading.Thread(target=lambda: answers.append(engine.generate()))
        waits.start()
        weights.send_weights(iter(model.named_parameters()))
        assert not answers
        weights.resume()
        waits.join(PATIENCE)
        assert answers == [(200, tiny.greedy(model))]
    finally:
        weights.destroy()
