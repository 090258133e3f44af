"""One of two ranks of a trainer with FSDP2, which sends its pieces by a source of the next vLLM. Arguments: see vllm_next.py."""

import sys

import tiny
import torch
import torch.distributed
from receiving import Engine
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from transformers import Qwen2ForCausalLM
from vllm.distributed.weight_transfer import base, factory

from bascule.vllm.trainer import BasculeTrainerInitInfo

checkpoint, endpoint = sys.argv[1:]
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
mesh = torch.distributed.init_device_mesh("cpu", (2,))
whole, model = Qwen2ForCausalLM.from_pretrained(checkpoint), Qwen2ForCausalLM.from_pretrained(checkpoint)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)


class NoGather(base.ModuleSource):
    def iter_full(self):
        raise AssertionError("a sharded trainer gathers nothing")


client = Engine()
engine = factory.WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint=endpoint, rank=rank, sharded=True),
                                                           client=client, source=NoGather(model))
for version in (1, 2, 3):
    tiny.train(whole, version)
    with torch.no_grad():
        for own, other in zip(model.parameters(), whole.parameters()):
            own.copy_(distribute_tensor(other.detach(), own.device_mesh, own.placements))
    engine.send_weights()
    assert client.finished == (version if rank == 0 else 0)
    if rank == 0:
        assert client.taken == {name: tiny.digest(each) for name, each in whole.named_parameters()}
if rank == 0:
    client.receiver.close()
engine.shutdown()
torch.distributed.destroy_process_group()
