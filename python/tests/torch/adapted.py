"""Tiny models with adapters of PEFT, for tests."""

import peft
import torch
import transformers

import bascule

IDS = torch.tensor([[1, 5, 9, 2, 33, 7]])
QKV = ["q_proj", "k_proj", "v_proj"]


def qwen(tied=False, dtype=torch.float32):
    torch.manual_seed(0)
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied)).to(dtype).eval()


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32, tie_word_embeddings=False)).eval()


def adapted(base=None, seed=1, **config):
    """A model with a random adapter. It is a no-op in PEFT's own initialisation."""
    config = {"r": 4, "lora_alpha": 12, "target_modules": QKV, **config}
    model = peft.get_peft_model(base if base is not None else qwen(), peft.LoraConfig(**config)).eval()
    train(model, seed)
    return model


@torch.no_grad()
def train(model, seed):
    """Writes new values into all that PEFT trains."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.normal_(std=0.3)


@torch.no_grad()
def logits(model):
    return model(IDS).logits


def sent_by(endpoint, register):
    """The tensors of one send, after `register` has registered a model with the sender, and the description."""
    with bascule.Sender(endpoint) as sender, bascule.Receiver(endpoint, worker="engine") as receiver:
        register(sender)
        return send_once(sender, receiver)


def send_once(sender, receiver):
    sender.wait_for_workers(1)
    version = sender.version + 1
    sender.send_async()
    receiver.wait_ready(version=version)
    assert receiver.commit().changed
    assert sender.wait_async().complete
    return {name: tensor.clone() for name, tensor in receiver.weights().items()}
