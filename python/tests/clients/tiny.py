"""A model with two layers, its checkpoint, and its weights in each version."""

import hashlib

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

WORDS = 512
PROMPT = [5, 6, 7, 8, 9]
TOKENS = 12


def save(folder, **sizes):
    """Writes config, tokenizer and weights into `folder`; returns the model."""
    torch.manual_seed(0)
    config = Qwen2Config(**{
        "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 1, "tie_word_embeddings": True, **sizes})
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    words = {"<s>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                            pad_token="</s>").save_pretrained(folder)
    return model


@torch.no_grad()
def train(model, version):
    """Gives the model weights that differ in each version, enough to change the tokens."""
    generator = torch.Generator().manual_seed(version)
    for parameter in model.parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))


def greedy(model):
    """The tokens that transformers generates."""
    tokens = model.generate(torch.tensor([PROMPT]), do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS)
    return tokens[0, len(PROMPT):].tolist()


@torch.no_grad()
def greedy_next(model, tokens):
    """For each of `tokens`, which follow the prompt, the token that transformers would have generated in its place."""
    logits = model(torch.tensor([PROMPT + tokens])).logits[0]
    return logits.argmax(-1)[len(PROMPT) - 1:-1].tolist()


def digest(tensor):
    """A hash of its bits."""
    return hashlib.sha256(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy()).hexdigest()
