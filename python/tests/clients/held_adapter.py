"""A worker extension: an engine that loads an adapter waits while the file $HOLD exists, and makes $HOLD.held."""

import os
import time

import bascule.vllm.adapter_rank

make, hold = bascule.vllm.adapter_rank.lora_model, os.environ["HOLD"]


def make_later(*arguments):
    if os.path.exists(hold):
        open(f"{hold}.held", "w").close()
    deadline = time.monotonic() + 60
    while os.path.exists(hold) and time.monotonic() < deadline:
        time.sleep(0.01)
    return make(*arguments)


bascule.vllm.adapter_rank.lora_model = make_later


class Extension:
    pass
