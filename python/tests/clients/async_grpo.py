"""An unmodified AsyncGRPOTrainer, of which the weight updates run. Arguments: the endpoint, the checkpoint's folder, the
server's URL, and nothing, or "merged" or "alone" for a PEFT model of which that is expected to be sent.
"""

import json
import os
import queue
import sys
import tempfile
import urllib.error
import urllib.request
from http import HTTPStatus

import peft
import tiny
from datasets import Dataset

import bascule.trl


class NoRollouts:
    """Stands where the worker stands that makes rollouts."""

    def __init__(self):
        self.rollout_buffer, self.metrics_queue, self.version = queue.Queue(), queue.Queue(), 0

    def start(self):
        pass

    def update_model_version(self, version):
        self.version = version


def generate(url, model):
    body = {"model": model, "prompt": tiny.PROMPT, "max_tokens": tiny.TOKENS, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())["choices"][0]["token_ids"]


STALENESS = 1  # how many older versions TRL keeps in the server


def check_alone(url, model, version, earlier):
    """The server must generate with this version and the one before it, and no longer with older ones."""
    earlier[version] = tiny.greedy(model)
    for each, tokens in earlier.items():
        if each >= version - STALENESS:
            assert generate(url, f"trl-policy-v{each}") == tokens
        else:
            try:
                generate(url, f"trl-policy-v{each}")
                raise AssertionError(f"version {each} is still served")
            except urllib.error.HTTPError as error:
                assert error.code == HTTPStatus.NOT_FOUND


def main(endpoint, folder, url, adapted):
    bascule.trl.install(endpoint)
    from transformers import PreTrainedTokenizerFast
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer

    async_grpo_trainer.get_peak_flops_per_device = lambda *_: 1e12  # it asks a GPU
    with tempfile.TemporaryDirectory() as output:
        trainer = AsyncGRPOTrainer(
            model=folder, rollout_worker=NoRollouts(), train_dataset=Dataset.from_dict({"prompt": ["w10 w11"] * 4}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(folder), reward_funcs=lambda completions, **_: [0.0],
            peft_config=peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]) if adapted else None,
            args=AsyncGRPOConfig(output_dir=output, vllm_server_base_url=url, use_cpu=True, bf16=False, dtype="float32",
                                 report_to=[], max_steps=1, max_staleness=STALENESS))
        if trainer.weight_transfer:
            trainer.weight_transfer.init_weight_transfer()  # as the trainer does when training begins
        alone = {}
        for version in range(1, 5):
            if adapted:
                for name, parameter in trainer.model.named_parameters():
                    if "lora_" in name:
                        parameter.data.normal_(std=0.3 * version)
            else:
                tiny.train(trainer.model, version)
            trainer._sync_weight()
            assert trainer.rollout_worker.version == version
            trainer.model.config._attn_implementation = "eager"  # the trainer's own kernel needs a GPU
            if adapted == "alone":
                check_alone(url, trainer.model, version, alone)
            else:
                assert generate(url, folder) == tiny.greedy(trainer.model)
        assert not os.listdir(output)  # TRL has saved no adapter
        if trainer.weight_transfer:
            trainer.weight_transfer.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
