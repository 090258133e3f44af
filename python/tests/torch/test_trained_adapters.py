"""Adapters of bascule-train in PEFT, and PEFT's in bascule-train: needs a release build of the trainer."""

import pathlib
import subprocess

import pytest
import torch

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRAIN, DEMO = ROOT / "build/release/bin/bascule-train", ROOT / "trainer_ref/demo"
pytestmark = pytest.mark.skipif(not TRAIN.exists(), reason="bascule-train is not built")


def train(*flags):
    subprocess.run([TRAIN, "--model", DEMO, "--threads", "1", *map(str, flags)], check=True, timeout=300)


def taught(out, *flags):
    train("--supervised", "--steps", 3, "--learning-rate", 1e-2, "--out", out, *flags)
    return out


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(1, 12)[None]).logits


def base():
    return transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)


def merged(adapter, out):
    train("--merge", adapter, "--merge-dtype", "f32", "--out", out)
    return transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flags", [
    ["--lora-rank", 4],
    ["--lora-rank", 8, "--lora-alpha", 5, "--lora-rslora", "--lora-targets", "q_proj,down_proj", "--lora-dropout", 0.1],
    ["--lora-rank", 2, "--lora-targets", r".*\.layers\.0\..*_proj"],
])
def test_peft_computes_with_a_trained_adapter_what_the_merged_checkpoint_computes(tmp_path, flags):
    adapter = taught(tmp_path / "adapter", *flags)
    model = peft.PeftModel.from_pretrained(base(), adapter)
    assert all(float(p.abs().max()) > 0 for name, p in model.named_parameters() if "lora_B" in name)  # it learnt
    assert not close(logits(model), logits(base()))
    assert close(logits(model), logits(merged(adapter, tmp_path / "merged")))


def test_a_run_starts_from_pefts_adapter(tmp_path):
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=6, use_rslora=True, target_modules="all-linear",
                             rank_pattern={"down_proj": 2}, alpha_pattern={"v_proj": 3}, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base(), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(tmp_path / "peft")
    assert close(logits(merged(tmp_path / "peft", tmp_path / "merged")), logits(model))

    # Without a learning rate to speak of, the run writes what it read.
    again = taught(tmp_path / "again", "--adapter", tmp_path / "peft", "--learning-rate", 1e-12)
    assert torch.equal(logits(peft.PeftModel.from_pretrained(base(), again)), logits(model))
    further = taught(tmp_path / "further", "--adapter", tmp_path / "peft")
    assert not close(logits(peft.PeftModel.from_pretrained(base(), further)), logits(model))
