"""TRL's weight synchronisation in a trainer that accelerate shards by FSDP2: each rank sends its shards.

accelerate 1.15 does not take FSDP2 for ranks on the CPU, so these tests tell it that it has. Receivers stand for the server.
"""

import contextlib
import logging
import multiprocessing
import os

import peft
import pytest
import torch
from torch import distributed

pytest.importorskip("trl")

import transformers
from safetensors.torch import load_file
from test_trl_client import made

import bascule
import bascule.trl
from bascule import sharded
from bascule.tensors import describe

PATIENCE = 900  # seconds, longer than anything healthy takes on a busy machine
RANKS, VERSIONS = 2, 3


def refuse_gathers():
    def gathers(self, **options):
        raise AssertionError("a tensor was gathered")

    distributed.tensor.DTensor.full_tensor = gathers


def sharded_model(adapter=None):
    """What accelerate's prepare() makes of a tied model and its optimizer, and the accelerator. adapter: a LoraConfig."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    accelerator = Accelerator(cpu=True)
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True)
    torch.manual_seed(0)
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=63, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True))
    if adapter is not None:
        model = peft.get_peft_model(model, adapter)
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


def begins(rank, folder, answers, trains, *arguments):
    """Calls trains(rank, folder, *arguments) in a rank of a group, and answers with what bascule.trl logged."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                      ACCELERATE_USE_CPU="true", ACCELERATE_USE_FSDP="true", FSDP_VERSION="2")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    lines = []
    keep = logging.Handler()
    keep.emit = lambda record: "trl" in record.module and lines.append(record.getMessage())
    logging.getLogger("bascule").addHandler(keep)
    logging.getLogger("bascule").setLevel(logging.INFO)
    try:
        trains(rank, folder, *arguments)
        answers.put((rank, lines))
    except BaseException as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
    answers.close()
    answers.join_thread()
    os._exit(0)  # other ranks may be gone, and gloo would wait for them


@contextlib.contextmanager
def ranks_that(trains, folder, *arguments):
    """Starts begins() in each rank. Yields a function that waits for the answers: by rank, the lines."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    ranks = [spawn.Process(target=begins, args=(rank, folder, answers, trains, *arguments)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    try:
        yield lambda: dict(answers.get(timeout=PATIENCE) for _ in ranks)
    finally:
        for each in ranks:
            each.kill()
            each.join(PATIENCE)


def step(rank, path, model, optimizer):
    """Trains, and saves the whole parameters in `path`."""
    model(torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimizer.step()
    state = {name: tensor.full_tensor().detach().clone() for name, tensor in model.named_parameters()}
    if rank == 0:
        torch.save(state, path)


def trains(rank, folder, endpoint, obstacle):
    accelerator, model, optimizer = sharded_model()
    generation = generation_of(accelerator, model, endpoint)
    if obstacle == "one rank" and rank == 1:
        bascule._trl_shards.HeldModel = refuses
    if obstacle == "scheme":  # shards on GPUs
        sharded.describe = lambda name, tensor: (*describe(name, tensor)[:4], 0)
        sharded.current_stream = lambda device: 0
    whole = distributed.tensor.DTensor.full_tensor
    for version in range(VERSIONS):
        step(rank, folder / f"{version}.pt", model, optimizer)
        if not obstacle:
            refuse_gathers()
            model.unshard()  # as after an evaluation; TRL itself cannot gather then
        generation.sync_weights()
        distributed.tensor.DTensor.full_tensor = whole


def trains_adapter(rank, folder, endpoint, kind):
    """kind: of the trainer, "grpo" or "async"."""
    accelerator, model, optimizer = sharded_model(peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    if kind == "grpo":
        generation = generation_of(accelerator, model, endpoint)
    else:
        bascule.trl.install(endpoint)
        from trl.experimental.async_grpo import async_grpo_trainer
    for version in range(VERSIONS):
        step(rank, folder / f"{version}.pt", model, optimizer)
        if kind == "grpo":
            generation.sync_weights()
        else:
            async_grpo_trainer.save_lora_adapter(model, accelerator, "default", str(folder / f"trl-policy-v{version}"))


def refuses(*arguments):
    raise bascule.BasculeError("tensor lm_head.weight is on GPU 0", "INVALID_ARGUMENT")


@pytest.mark.parametrize("obstacle, line", [
    ("", "each rank sends the shards that it holds; nothing is gathered"),
    ("one rank", "their shards are not sent: tensor lm_head.weight is on GPU 0"),
    ("scheme", "their shards are not sent: rank 0: the shards lie in device 0, and shm keeps its slots in host memory"),
], ids=["shards", "one rank cannot", "the scheme cannot"])
def test_each_version_is_what_full_tensor_gives(endpoint, tmp_path, obstacle, line):
    with ranks_that(trains, tmp_path, endpoint, obstacle) as answers, bascule.Receiver(endpoint, worker="a") as receiver:
        for version in range(VERSIONS):
            assert receiver.take(version + 1, PATIENCE) == version + 1
            wanted, found = torch.load(tmp_path / f"{version}.pt"), receiver.weights()
            assert sorted(found) == sorted(wanted) and "lm_head.weight" not in found  # tied ones travel once
            for name, tensor in wanted.items():
                assert torch.equal(found[name], tensor), name
            receiver.finish()
        said = answers()
        assert len(said[0]) == 1 and line in said[0][0] and said[1] == [], said


ADAPTED = "base_model.model.model.layers.0.self_attn.q_proj"


def test_a_sharded_model_with_an_adapter_is_sent_as_trl_merges_it(endpoint, tmp_path):
    with ranks_that(trains_adapter, tmp_path, endpoint, "grpo") as answers, \
            bascule.Receiver(endpoint, worker="a") as receiver:
        for version in range(VERSIONS):
            assert receiver.take(version + 1, PATIENCE) == version + 1
            wanted, found = torch.load(tmp_path / f"{version}.pt"), receiver.weights()
            a, b = (wanted.pop(f"{ADAPTED}.lora_{each}.default.weight") for each in "AB")
            wanted[f"{ADAPTED}.base_layer.weight"] += 8 / 4 * b @ a
            wanted = {name.removeprefix("base_model.model.").replace(".base_layer", ""): each for name, each in wanted.items()}
            assert sorted(found) == sorted(wanted)
            for name, tensor in wanted.items():
                torch.testing.assert_close(torch.as_tensor(found[name]), tensor)
            receiver.finish()
        said = answers()
        assert len(said[0]) == 1 and "lora_A is sharded (DTensor)" in said[0][0] and said[1] == [], said


def test_a_sharded_adapter_is_saved_by_trls_asynchronous_trainer(endpoint, tmp_path):
    with ranks_that(trains_adapter, tmp_path, endpoint, "async") as answers:
        said = answers()
    assert said == {0: ["TRL saves the adapter in a folder, which the server reads; Bascule does not send it: FSDP2 shards the "
                        "model"], 1: []}
    for version in range(VERSIONS):
        wanted = torch.load(tmp_path / f"{version}.pt")
        saved = load_file(tmp_path / f"trl-policy-v{version}" / "adapter_model.safetensors")
        assert {name.replace(".weight", ".default.weight") for name in saved} == {name for name in wanted if "lora_" in name}
        for name, tensor in saved.items():
            assert torch.equal(tensor, wanted[name.replace(".weight", ".default.weight")]), name
