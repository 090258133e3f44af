"""An unmodified GRPOTrainer with a LoRA adapter. Arguments: the endpoint, the checkpoint's folder, the server's URL.

After two steps it sends three versions of the adapter. It prints the tokens that the server generates with each of them,
and their log-probabilities by the server, by the trainer, and by the base model.
"""

import json
import logging
import sys
import tempfile

import peft
import tiny
import torch
from grpo import trainer_of

import bascule.trl


@torch.no_grad()
def logprobs(model, tokens):
    """The log-probabilities of `tokens`, which follow the prompt."""
    logits = model(torch.tensor([tiny.PROMPT + tokens])).logits[0, len(tiny.PROMPT) - 1:-1]
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(tokens)[:, None])[:, 0].tolist()


@torch.no_grad()
def change(model, version):
    generator = torch.Generator().manual_seed(version)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


def main(endpoint, folder, url):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("bascule").addHandler(handler)
    logging.getLogger("bascule").setLevel(logging.INFO)
    bascule.trl.install(endpoint)
    with tempfile.TemporaryDirectory() as output:
        trainer = trainer_of(folder, url, output, peft_config=peft.LoraConfig(
            r=4, lora_alpha=12, use_rslora=True, target_modules="all-linear", rank_pattern={"q_proj": 8},
            alpha_pattern={"v_proj": 5}))
        base = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items() if "lora_" not in name}
        trainer.train()
        trainer.model.eval()  # in train mode, gradient checkpointing disables the cache
        client, versions = trainer.vllm_generation.vllm_client, []
        for version in range(3):
            change(trainer.model, version)
            trainer.vllm_generation.sync_weights()
            said = client.generate([tiny.PROMPT], n=1, temperature=0.0, max_tokens=tiny.TOKENS, logprobs=0,
                                   generation_kwargs={"ignore_eos": True})
            tokens = said["completion_ids"][0]
            with trainer.model.disable_adapter():
                of_base = logprobs(trainer.model, tokens)
            versions.append({"tokens": tokens, "transformers": tiny.greedy(trainer.model),
                             "server": [each[0] for each in said["logprobs"][0]], "trainer": logprobs(trainer.model, tokens),
                             "base": of_base})
        now = trainer.model.state_dict()
        print(json.dumps({"versions": versions, "steps": trainer.state.global_step, "log": lines, "model": client.model,
                          "base_unchanged": all(torch.equal(tensor, now[name]) for name, tensor in base.items())}))
        client.close_communicator()


if __name__ == "__main__":
    main(*sys.argv[1:])
