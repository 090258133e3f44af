"""TRL's weight synchronisation in a trainer that accelerate shards by FSDP2: each rank sends its shards.

accelerate 1.15 does not take FSDP2 for ranks on the CPU, so these tests tell it that it has. Receivers stand for the server.
"""

import logging
import multiprocessing
import os

import pytest
import torch
from torch import distributed

pytest.importorskip("trl")

import transformers
from test_trl_client import made

import bascule
import bascule.trl
from bascule import sharded
from bascule.tensors import describe

PATIENCE = 300  # seconds, longer than anything healthy takes
RANKS, VERSIONS = 2, 3


def refuse_gathers():
    def gathers(self, **options):
        raise AssertionError("a tensor was gathered")

    distributed.tensor.DTensor.full_tensor = gathers


def sharded_model():
    """What accelerate's prepare() makes of a tied model and its optimizer, and the accelerator."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    accelerator = Accelerator(cpu=True)
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True)
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=63, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return accelerator, model, optimizer


def generation_of(accelerator, model, endpoint):
    """TRL's VLLMGeneration, without a server."""
    from trl.distributed import DistributedBackend
    from trl.generation.vllm_generation import VLLMGeneration

    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.mode, generation.model, generation.accelerator = "server", model, accelerator
    generation._dist, generation._weight_metadata = DistributedBackend(accelerator), None
    client = made(endpoint)  # installs on all ranks
    if accelerator.is_main_process:
        client.init_communicator()
        client.reset_prefix_cache = lambda: None
        generation.vllm_client = client
    return generation


def trains(rank, folder, endpoint, obstacle, answers):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                      ACCELERATE_USE_CPU="true", ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    lines = []
    keep = logging.Handler()
    keep.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("bascule").addHandler(keep)
    logging.getLogger("bascule").setLevel(logging.INFO)
    try:
        accelerator, model, optimizer = sharded_model()
        generation = generation_of(accelerator, model, endpoint)
        if obstacle == "one rank" and rank == 1:
            bascule._trl_shards.HeldModel = refuses
        if obstacle == "scheme":  # shards on GPUs
            sharded.describe = lambda name, tensor: (*describe(name, tensor)[:4], 0)
            sharded.current_stream = lambda device: 0
        whole = distributed.tensor.DTensor.full_tensor
        for version in range(VERSIONS):
            model(torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
            optimizer.step()
            state = {name: tensor.full_tensor().detach().clone() for name, tensor in model.named_parameters()}
            if rank == 0:
                torch.save(state, folder / f"{version}.pt")
            if not obstacle:
                refuse_gathers()
                model.unshard()  # as after an evaluation; TRL itself cannot gather then
            generation.sync_weights()
            distributed.tensor.DTensor.full_tensor = whole
        answers.put((rank, [line for line in lines if "gather" in line]))
    except BaseException as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
    answers.close()
    answers.join_thread()
    os._exit(0)  # other ranks may be gone, and gloo would wait for them


def refuses(*arguments):
    raise bascule.BasculeError("tensor lm_head.weight is on GPU 0", "INVALID_ARGUMENT")


@pytest.mark.parametrize("obstacle, line", [
    ("", "each rank sends the shards that it holds; nothing is gathered"),
    ("one rank", "their shards are not sent: tensor lm_head.weight is on GPU 0"),
    ("scheme", "their shards are not sent: rank 0: the shards lie in device 0, and shm keeps its slots in host memory"),
], ids=["shards", "one rank cannot", "the scheme cannot"])
def test_each_version_is_what_full_tensor_gives(endpoint, tmp_path, obstacle, line):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    ranks = [spawn.Process(target=trains, args=(rank, tmp_path, endpoint, obstacle, answers)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    try:
        with bascule.Receiver(endpoint, worker="a") as receiver:
            for version in range(VERSIONS):
                assert receiver.take(version + 1, PATIENCE) == version + 1
                wanted, found = torch.load(tmp_path / f"{version}.pt"), receiver.weights()
                assert sorted(found) == sorted(wanted) and "lm_head.weight" not in found  # tied ones travel once
                for name, tensor in wanted.items():
                    assert torch.equal(found[name], tensor), name
                receiver.finish()
            said = dict(answers.get(timeout=PATIENCE) for _ in ranks)
            assert len(said[0]) == 1 and line in said[0][0] and said[1] == [], said
    finally:
        for each in ranks:
            each.kill()
            each.join(PATIENCE)
