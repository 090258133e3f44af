"""One of two ranks of a trainer with FSDP2. Arguments: the checkpoint, the endpoint, the URL of the server."""

import json
import sys
import urllib.request

import tiny
import torch
import torch.distributed
from torch.distributed.fsdp import fully_shard
from transformers import Qwen2ForCausalLM
from vllm.distributed.weight_transfer.base import ModuleSource
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

from bascule.vllm.trainer import BasculeTrainerInitInfo

checkpoint, endpoint, server = sys.argv[1:]
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
mesh = torch.distributed.init_device_mesh("cpu", (2,))
whole, model = Qwen2ForCausalLM.from_pretrained(checkpoint), Qwen2ForCausalLM.from_pretrained(checkpoint)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
engine = WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint=endpoint, rank=rank),
                                                   client=HTTPVLLMWeightSyncClient(server), source=ModuleSource(model))
for version in (1, 2, 3):
    tiny.train(whole, version)
    with torch.no_grad():
        for own, other in zip(model.parameters(), whole.parameters()):
            own.copy_(torch.distributed.tensor.distribute_tensor(other.detach(), own.device_mesh, own.placements))
    engine.send_weights()
    if rank == 0:
        body = {"prompt": tiny.PROMPT, "max_tokens": tiny.TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(f"{server}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert json.loads(answer.read())["choices"][0]["token_ids"] == tiny.greedy(whole)
    torch.distributed.barrier()
engine.shutdown()
torch.distributed.destroy_process_group()
