"""An unmodified GRPOTrainer of two steps. Arguments: the endpoint, the checkpoint's folder, the server's URL.

It prints the greedy tokens that transformers and the server generate with its last weights.
"""

import json
import sys
import tempfile

import tiny
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

import bascule.trl


def main(endpoint, folder, url):
    bascule.trl.install(endpoint)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=Qwen2ForCausalLM.from_pretrained(folder),
            processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
            reward_funcs=lambda completions, **_: [float(len(set(each.split()))) for each in completions],
            train_dataset=Dataset.from_dict({"prompt": [f"w{i} w{i + 1} w{i + 2}" for i in range(10, 26)]}),
            args=GRPOConfig(
                output_dir=output, use_vllm=True, vllm_mode="server", vllm_server_base_url=url, use_cpu=True,
                vllm_server_timeout=240, per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
                max_steps=2, learning_rate=0.05, lr_scheduler_type="constant", report_to=[], save_strategy="no",
                logging_steps=1, bf16=False, disable_tqdm=True))
        trainer.train()
        trainer.vllm_generation.sync_weights()
        output = trainer.vllm_generation.vllm_client.generate([tiny.PROMPT], n=1, temperature=0.0,
                                                              max_tokens=tiny.TOKENS,
                                                              generation_kwargs={"ignore_eos": True})
        trainer.model.eval()  # in train mode, gradient checkpointing disables generate()'s cache
        print(json.dumps({"server": output["completion_ids"][0], "transformers": tiny.greedy(trainer.model),
                          "steps": trainer.state.global_step}))
        trainer.vllm_generation.vllm_client.close_communicator()


if __name__ == "__main__":
    main(*sys.argv[1:])
