"""Adapters of PEFT for the model of tiny.py."""

import peft
import tiny
import torch
from transformers import Qwen2ForCausalLM

QKV = ["q_proj", "k_proj", "v_proj"]


def adapted(base, **config):
    """A model with an adapter. base: a model, or a checkpoint's folder."""
    base = Qwen2ForCausalLM.from_pretrained(base) if isinstance(base, str) else base
    return peft.get_peft_model(base.eval(), peft.LoraConfig(**{"r": 8, "lora_alpha": 16, "target_modules": QKV,
                                                                **config})).eval()


@torch.no_grad()
def train(model, version):
    """Gives the adapter values that differ in each version, enough to change the tokens."""
    generator = torch.Generator().manual_seed(version)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def expected(model, prompt=tiny.PROMPT, tokens=tiny.TOKENS):
    """The greedy tokens of transformers and PEFT, and their log-probabilities."""
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    logits = model(torch.tensor([ids])).logits[0, len(prompt) - 1:-1].log_softmax(-1)
    made = ids[len(prompt):]
    return made, [row[token].item() for row, token in zip(logits, made)]
