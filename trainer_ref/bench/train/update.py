"""The update of bascule-bench-train in PyTorch: Hugging Face's model with SDPA, gradient checkpointing, fused AdamW.

    python3 trainer_ref/bench/train/update.py --model trainer_ref/bench/engine/qwen3-0.6b --device cuda

Rows are of one length, so nothing is padded. Weights and moments are f32; the forward pass runs under autocast to bf16
(--params bf16: weights, gradients and moments are bf16 instead; --lora-rank: PEFT's adapters of all linear modules, in f32
over a frozen model in bf16). Logits are made for the completions' tokens alone, and
the loss is GRPO's of a first iteration, as the trainer has it.
"""

import argparse
import contextlib
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def log_probs_of(model, tokens, completion_tokens):
    """[R, T] → log-probabilities of each row's last completion_tokens, [R, M]"""
    logits = model(tokens, use_cache=False, logits_to_keep=completion_tokens + 1).logits[:, :-1]
    targets = tokens[:, -completion_tokens:].unsqueeze(-1)
    return logits.float().log_softmax(-1).gather(-1, targets).squeeze(-1)


def update(model, optimizer, tokens, advantages, flags):
    completion_tokens = flags.row_tokens - flags.prompt_tokens
    rows = max(1, flags.micro_batch_tokens // flags.row_tokens)
    casts = flags.params == "f32" or flags.lora_rank
    narrow = torch.autocast(tokens.device.type, torch.bfloat16) if casts else contextlib.nullcontext()
    optimizer.zero_grad(set_to_none=True)
    for first in range(0, flags.rows, rows):
        part, advantage = tokens[first:first + rows], advantages[first:first + rows, None]
        with narrow:
            log_probs = log_probs_of(model, part, completion_tokens)
        ratio = (log_probs - log_probs.detach()).exp()
        objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        (-objective.mean(1).sum() / flags.rows).backward()
    torch.nn.utils.clip_grad_norm_([each for each in model.parameters() if each.requires_grad], 1.0)
    optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="trainer_ref/bench/engine/qwen3-0.6b", help="a folder with a config.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--params", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--row-tokens", type=int, default=1024)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--micro-batch-tokens", type=int, default=16384)
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--warm-ups", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    flags = parser.parse_args()
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(flags.model)
    dtype = torch.float32 if flags.params == "f32" and not flags.lora_rank else torch.bfloat16
    with torch.device(flags.device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").train()
    if not flags.no_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if flags.lora_rank:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=flags.lora_rank, lora_alpha=2 * flags.lora_rank,
                                                           target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, weight_decay=0, fused=True)
    tokens = torch.randint(config.vocab_size, (flags.rows, flags.row_tokens), device=flags.device)
    advantages = torch.tensor([1.0, -1.0] * flags.rows, device=flags.device)[:flags.rows]

    on_gpu = torch.device(flags.device).type == "cuda"
    seconds = []
    for _ in range(flags.warm_ups + flags.repeat):
        begin = time.perf_counter()
        update(model, optimizer, tokens, advantages, flags)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = sorted(seconds[flags.warm_ups:])[flags.repeat // 2]
    what = f"adapters of rank {flags.lora_rank}" if flags.lora_rank else f"{flags.params} weights"
    print(f"an update of {flags.rows} rows of {flags.row_tokens} tokens, PyTorch {torch.__version__}, {what}: {median:.4g} s, "
          f"{flags.rows * flags.row_tokens / median:.0f} tokens/s")
    if on_gpu:
        print(f"memory, measured: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at the peak, "
              f"{torch.cuda.max_memory_reserved() / 2**30:.2f} GiB with what PyTorch keeps")


if __name__ == "__main__":
    main()
