"""The diffs in docs/guide/migration.md: the lines that come run, and what the lines that go import is there."""

import functools
import importlib
import threading
from pathlib import Path

import migration
import pytest
import tiny
import torch

import bascule

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture
def follow(endpoint):
    """follow(worker) starts a thread that takes one version; its result is a digest of each tensor."""
    threads = []

    def start(worker):
        taken = {}

        def take():
            with bascule.Receiver(endpoint, worker=worker) as receiver:
                assert receiver.take(timeout=PATIENCE) is not None
                taken.update((name, tiny.digest(torch.as_tensor(each))) for name, each in receiver.weights().items())
                receiver.finish()

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        return taken

    yield start
    for each in threads:
        each.join(PATIENCE)


def test_torchrls_double_buffer(endpoint):
    pytest.importorskip("torchrl")
    [(before, after)] = migration.diffs("TorchRL's double buffer", endpoint)
    theirs, scheme = migration.run(before)["scheme"], migration.run(after)["scheme"]
    policy, engine = torch.nn.Linear(8, 2), torch.nn.Linear(8, 2)
    receiver, sender = scheme.create_receiver(engine), scheme.create_sender()
    sender.register_model(policy)
    sender.update_weights()
    assert receiver.poll_and_apply(timeout=PATIENCE) and torch.equal(engine.weight, policy.weight)
    assert not receiver.poll_and_apply(timeout=0)
    assert all(hasattr(theirs.create_sender(), each) for each in ("register_model", "update_weights"))
    assert hasattr(theirs.create_receiver(engine), "poll_and_apply")
    sender.close()


def check_server(line, endpoint):
    """`line` must start a vLLM that follows the endpoint."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    variables, words = migration.command(line)
    assert words[:3] == ["vllm", "serve", "MODEL"]
    assert variables["BASCULE_ENDPOINT"] == endpoint
    assert make_arg_parser(FlexibleArgumentParser()).parse_args(words[3:]).weight_transfer_config.backend == "bascule"


def test_trls_nccl_client(endpoint, tmp_path):
    trl, _ = pytest.importorskip("trl"), pytest.importorskip("vllm")
    [(_, trainer), (_, server)] = migration.diffs("TRL's NCCL client", endpoint)
    config = functools.partial(trl.GRPOConfig, output_dir=str(tmp_path), use_cpu=True, bf16=False)
    made = migration.run(trainer, GRPOConfig=config, GRPOTrainer=lambda *_, args: args)["trainer"]
    assert made.use_vllm and made.vllm_mode == "server"
    assert importlib.import_module("trl.generation.vllm_client").VLLMClient.bascule_endpoint == endpoint
    check_server(server, endpoint)


def test_vllms_own_engines(endpoint, model):
    pytest.importorskip("vllm")
    from receiving import Engine
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    [(before, after)] = migration.diffs("vLLM's own engines", endpoint)
    client, source = Engine(), ModuleSource(model)
    engine = migration.run(after, WeightTransferTrainerFactory=WeightTransferTrainerFactory, client=client, source=source,
                           rank=0)["engine"]
    engine.send_weights()
    assert client.taken == {name: tiny.digest(each) for name, each in model.named_parameters()}
    client.receiver.close()
    engine.shutdown()

    class Factory:
        trainer_init = staticmethod(lambda info, **_: info)  # no NCCL group

    assert migration.run(before, WeightTransferTrainerFactory=Factory, client=client, source=source,
                         rank=0)["engine"].backend == "nccl"


def test_checkpoint_engine_and_atropos(endpoint, model, follow):
    [(_, sends)] = migration.diffs("checkpoint-engine", endpoint)
    [(_, server), (_, step)] = migration.diffs("Atropos' bridge", endpoint)
    engines = [follow("a"), follow("b")]
    names = migration.run(sends, model=model)
    wanted = {name: tiny.digest(each) for name, each in model.state_dict().items()}
    assert all(engine == wanted for engine in engines)
    names["sender"].expect_workers(0)  # both have left
    tiny.train(model, 2)
    migration.run(step, sender=names["sender"], optimizer=torch.optim.SGD(model.parameters()))
    assert names["sender"].version == 2
    names["sender"].close()
    pytest.importorskip("vllm")
    check_server(server, endpoint)


def test_verls_buckets():
    verl = pytest.importorskip("verl")
    import yaml
    from verl.checkpoint_engine import CheckpointEngineRegistry
    from verl.workers.config import CheckpointEngineConfig

    [diff] = migration.diffs("verl's buckets", "")
    before, after = (yaml.safe_load(text)["actor_rollout_ref.rollout.checkpoint_engine"] for text in diff)
    config = CheckpointEngineConfig(**after)
    importlib.import_module(config.custom_backend_module)
    assert CheckpointEngineRegistry.get(config.backend).__module__ == "bascule.verl"
    settings = yaml.safe_load((Path(verl.__file__).parent / "trainer/config/rollout/rollout.yaml").read_text())
    assert {*before, *after} <= settings["checkpoint_engine"].keys()
