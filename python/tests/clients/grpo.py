"""An unmodified GRPOTrainer of two steps, whose server is `vllm serve`."""

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer


def trainer_of(folder, url, output, **options):
    """A trainer of the model in `folder`, which writes into `output`. options: more arguments of GRPOTrainer."""
    torch.manual_seed(1)
    return GRPOTrainer(
        model=Qwen2ForCausalLM.from_pretrained(folder),
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder),
        reward_funcs=lambda completions, **_: [float(len(set(each.split()))) for each in completions],
        train_dataset=Dataset.from_dict({"prompt": [f"w{i} w{i + 1} w{i + 2}" for i in range(10, 26)]}),
        args=GRPOConfig(
            output_dir=output, use_vllm=True, vllm_mode="server", vllm_server_base_url=url, use_cpu=True,
            vllm_server_timeout=600, per_device_train_batch_size=4, num_generations=4, max_completion_length=8,
            max_steps=2, learning_rate=0.05, lr_scheduler_type="constant", report_to=[], save_strategy="no",
            logging_steps=1, bf16=False, disable_tqdm=True),
        **options)
