#!/usr/bin/env python3
"""Writes tests/trainer_ref/model/fixtures: small random checkpoints, and transformers' results for them.

Needs the full Python wheels, unlike the build:
    python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.23.0
    V/bin/python tests/tools/make-fixtures.py
The seeds are fixed: the same versions write the same bytes.

Each model's folder holds config.json, its weights, and expected.safetensors:
    input_ids    I64 [T]      a random text
    logits       F32 [T, V]   from the model in float32
    logits_bf16  F32 [T, V]   from the model in bfloat16, widened
    generated    I64 [T + n]  the first 8 tokens, continued by greedy decoding in float32
"""

import pathlib
import shutil
import sys

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports, which may fail
    print(__doc__)
    sys.exit(0)

import torch
import transformers
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests/trainer_ref/model/fixtures"
TOKENS = 40
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=63)

# name: (configuration, dtype of the file, largest shard)
MODELS = {
    # The original context is short, so that the text has all three kinds of wavelength.
    "llama_scaled": (transformers.LlamaConfig(**SIZES, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32)), torch.float32, "40KB"),
    "llama_biased": (transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
                     torch.float32, None),
    "mistral": (transformers.MistralConfig(**SIZES, head_dim=16, sliding_window=None), torch.float32, None),
    "qwen2": (transformers.Qwen2Config(**SIZES, tie_word_embeddings=True), torch.float32, None),
    "qwen3": (transformers.Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True), torch.bfloat16, None),
}


def randomize(model):
    """Sets weights that make logits differ, and biases and norms whose omission would show."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.2 * torch.randn(weight.shape))
            else:
                weight.copy_(0.25 * torch.randn(weight.shape))


def make_model(name, config, dtype, shard):
    torch.manual_seed(sum(name.encode()))
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomize(model)
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)

    input_ids = torch.randint(0, config.vocab_size - 1, (1, TOKENS))
    expected = {"input_ids": input_ids[0]}
    with torch.no_grad():
        for key, compute in {"logits": torch.float32, "logits_bf16": torch.bfloat16}.items():
            loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=compute).eval()
            expected[key] = loaded(input_ids).logits[0].float().contiguous()
            if compute == torch.float32:
                prompt = input_ids[:, :8]  # needs a mask: tokens with the padding's id would be ignored
                generated = loaded.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24,
                                            do_sample=False, pad_token_id=0)
                expected["generated"] = generated[0]
    save_file(expected, folder / "expected.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model_name, arguments in MODELS.items():
        make_model(model_name, *arguments)
    print(f"{sum(f.stat().st_size for f in FIXTURES.rglob('*') if f.is_file())} bytes in {FIXTURES}")
