"""Hugging Face's generate() over the same shape and requests as bascule-bench-engine's http: tokens per second.

    python3 trainer_ref/bench/engine/generate.py --model trainer_ref/bench/engine/qwen3-0.6b --rows 256 [--save DIR]

--save writes the random weights as a checkpoint that bascule-engine serves.
"""

import argparse
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="trainer_ref/bench/engine/qwen3-0.6b", help="a folder with a config.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--generated-tokens", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save", help="a folder for the weights")
    flags = parser.parse_args()
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(flags.model)
    with torch.device(flags.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    if flags.save:
        model.save_pretrained(flags.save)
    tokens = torch.randint(config.vocab_size, (flags.rows, flags.prompt_tokens), device=flags.device)
    seconds = []
    for _ in range(1 + flags.repeat):  # the first warms up
        begin = time.perf_counter()
        answer = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=True, eos_token_id=None,
                                max_new_tokens=flags.generated_tokens, min_new_tokens=flags.generated_tokens,
                                pad_token_id=0)
        if flags.device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    assert answer.shape == (flags.rows, flags.prompt_tokens + flags.generated_tokens)
    median = sorted(seconds[1:])[flags.repeat // 2]
    print(f"generate(), {flags.rows} rows: {median * 1e3:.0f} ms, "
          f"{flags.rows * flags.generated_tokens / median:.0f} tokens/s")


if __name__ == "__main__":
    main()
