"""FSDP2 trains a model on two processes, and a vLLM with two ranks generates with it. No tensor is gathered.

    python examples/python/fsdp.py FOLDER      the model in this folder learns to count
"""

import os
import sys
import tempfile

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

import bascule


def train(rank, folder, endpoint, store):
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    mesh = distributed.init_device_mesh("cpu", (2,))
    for part in (*model.model.layers, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with bascule.Sender(endpoint, sharded=True) as sender:
        sender.register_model(model)
        if rank == 0:
            sender.wait_for_workers(2, timeout=600)  # vLLM's ranks
        distributed.barrier()
        for step in range(30):
            tokens = torch.arange(5, 25)[None] + 4 * rank  # each rank has its own data
            optimizer.zero_grad()
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
            assert sender.send(step=step).complete  # vLLM's ranks serve these weights now
    distributed.destroy_process_group()


def main(folder):
    from vllm import LLM, SamplingParams, TokensPrompt  # not in the trainer's processes

    with tempfile.TemporaryDirectory() as place:
        os.environ["BASCULE_ENDPOINT"] = f"shm://{place}/endpoint"  # which vLLM follows
        llm = LLM(folder, tensor_parallel_size=2, weight_transfer_config={"backend": "bascule"}, dtype="float32",
                  max_model_len=64, kv_cache_memory_bytes=1 << 26, enforce_eager=True)
        torch.multiprocessing.spawn(train, (folder, os.environ["BASCULE_ENDPOINT"], f"{place}/store"), nprocs=2)
        outputs = llm.generate([TokensPrompt(prompt_token_ids=[5, 6, 7])], SamplingParams(temperature=0, max_tokens=4))
        print(f"version {llm.get_weight_version()} continues 5 6 7 with", *outputs[0].outputs[0].token_ids, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
