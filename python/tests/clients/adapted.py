"""Adapters of PEFT for the model of tiny.py, and what a server may answer with them."""

import threading
from contextlib import contextmanager

import peft
import tiny
import torch
from transformers import Qwen2ForCausalLM

torch.set_num_threads(1)  # several would wait for each other, on a machine where an engine computes as well
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


@torch.no_grad()
def next_tokens(model, tokens):
    """For each of `tokens`, which follow the prompt, the token that PEFT would have generated in its place."""
    logits = model(torch.tensor([tiny.PROMPT + tokens])).logits[0]
    return logits.argmax(-1)[len(tiny.PROMPT) - 1:-1].tolist()


@contextmanager
def asking(*functions):
    """Calls each of `functions` again and again, in its own thread, while the block runs.

    At the end, raises what one of them raised, or AssertionError if one was never called.
    """
    stop, outcomes = threading.Event(), [[] for _ in functions]

    def ask(function, outcome):
        while not stop.is_set():
            try:
                outcome.append(function())
            except BaseException as error:
                outcome.append(error)
                return

    threads = [threading.Thread(target=ask, args=each) for each in zip(functions, outcomes)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()
    for outcome in outcomes:
        assert outcome
        if isinstance(outcome[-1], BaseException):
            raise outcome[-1]
