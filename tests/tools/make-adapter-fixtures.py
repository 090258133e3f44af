#!/usr/bin/env python3
"""Writes the adapters in tests/trainer_ref/model/fixtures, *_lora: PEFT folders over the small models there, and what PEFT
and transformers compute with them.

Needs the full Python wheels, unlike the build:
    python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.24.0 peft==0.21.2
    V/bin/python tests/tools/make-adapter-fixtures.py
The seeds are fixed: the same versions write the same bytes.

Each folder holds adapter_config.json, adapter_model.safetensors, and expected.safetensors:
    input_ids      I64 [T]     the text of the base model's fixture
    logits         F32 [T, V]  in float32
    logits_bf16    F32 [T, V]  base weights in bfloat16, factors in float32, under autocast to bfloat16, widened
    grad.<tensor>              of (the mean over the text of log softmax(logits)[3]), for each tensor of the adapter
and description.json, the text that bascule's Sender.register_adapter() sends with it.
"""

import json
import pathlib
import shutil
import sys
import types

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports, which may fail
    print(__doc__)
    sys.exit(0)

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/trainer_ref/model/fixtures"

package = sys.modules["bascule"] = types.ModuleType("bascule")  # without the native library
package.__path__ = [str(ROOT / "python/bascule")]
from bascule import lora_config  # noqa: E402

# folder: (base model, configuration)
ADAPTERS = {
    # Three ranks, three alphas and √rank: a wrong rule for any of them changes logits.
    "qwen2_lora": ("qwen2", dict(
        r=4, lora_alpha=6, use_rslora=True, target_modules="all-linear", lora_dropout=0.1,
        rank_pattern={"mlp.down_proj": 2, "layers.1.self_attn.(q|k)_proj": 3},
        alpha_pattern={"^model\\.layers\\.0\\.self_attn\\.v_proj": 9.5, "gate_proj": 1})),
    "llama_scaled_lora": ("llama_scaled", dict(
        r=8, lora_alpha=16, target_modules=r".*\.layers\.\d+\.self_attn\.(q|v)_proj")),
    "qwen3_lora": ("qwen3", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "mistral_lora": ("mistral", dict(r=3, lora_alpha=3, use_rslora=True, target_modules=["o_proj", "k_proj", "up_proj"])),
    "llama_biased_lora": ("llama_biased", dict(r=4, lora_alpha=8, target_modules="all-linear")),
}


def base_of(name, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(FIXTURES / name, dtype=dtype)


def write(name, base, options):
    torch.manual_seed(sum(name.encode()))
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    made = peft.get_peft_model(base_of(base, torch.float32), peft.LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape))
    made.peft_config["default"].base_model_name_or_path = base
    made.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # PEFT writes a set, in any order
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True))

    ranks = {key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"): tensor.shape[0]
             for key, tensor in load_file(folder / "adapter_model.safetensors").items() if "lora_A" in key}
    base_class = type(made.get_base_model())
    (folder / "description.json").write_text(
        lora_config.describe_adapter(config, ranks, (base_class.__name__, base_class.__module__)))

    ids = load_file(FIXTURES / base / "expected.safetensors")["input_ids"]
    expected = {"input_ids": ids}
    model = peft.PeftModel.from_pretrained(base_of(base, torch.float32), folder, is_trainable=True).eval()
    logits = model(ids[None]).logits[0]
    expected["logits"] = logits.detach().contiguous()
    logits.log_softmax(-1)[:, 3].mean().backward()
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            expected["grad." + key.replace(".default", "")] = parameter.grad
    narrow = peft.PeftModel.from_pretrained(base_of(base, torch.bfloat16), folder).eval()
    assert {p.dtype for n, p in narrow.named_parameters() if "lora_" in n} == {torch.float32}
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected["logits_bf16"] = narrow(ids[None]).logits[0].float().contiguous()
    save_file(expected, folder / "expected.safetensors")
    plain = base_of(base, torch.float32).eval()(ids[None]).logits[0]
    print(name, "adapter's largest effect on a logit:", float((plain - expected["logits"]).abs().max()))


if __name__ == "__main__":
    for name, (base, options) in ADAPTERS.items():
        write(name, base, options)
