#!/usr/bin/env python3
"""Loads two checkpoint folders with Hugging Face's transformers and compares what they compute.

    V/bin/python tests/tools/verify-checkpoint.py WRITTEN ORIGINAL

WRITTEN is a checkpoint that Bascule wrote: it must load without a missing or surplus tensor, in the dtype of its
config.json. The same weights in the same dtype give a difference of 0. Needs the wheels that tests/tools/make-fixtures.py
names.
"""

import sys

if {"-h", "--help"} & set(sys.argv[1:]):  # before the wheels that may be missing
    print(__doc__)
    sys.exit(0)

import torch
import transformers


def logits_of(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    print(f"{folder}: {type(model).__name__}, {model.dtype}, {model.num_parameters()} parameters")
    tokens = torch.arange(32)[None] * 7 % model.config.vocab_size
    with torch.no_grad():
        return model.eval()(tokens).logits.float()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("verify-checkpoint: expected two folders, as tests/tools/verify-checkpoint.py out/run/step_60 trainer_ref/demo",
              file=sys.stderr)
        sys.exit(2)
    written, original = map(logits_of, sys.argv[1:])
    print(f"largest difference of logits: {(written - original).abs().max().item():g} "
          f"(largest logit {original.abs().max().item():g})")
