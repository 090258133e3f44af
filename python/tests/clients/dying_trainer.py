"""A trainer that is killed while it writes its second version. Arguments: endpoint, the checkpoint's folder."""

import os
import signal
import sys

import tiny
from transformers import Qwen2ForCausalLM

import bascule

endpoint, folder = sys.argv[1:]
model = Qwen2ForCausalLM.from_pretrained(folder)
tensors = dict(model.named_parameters())


def until_killed():
    for i, named in enumerate(tensors.items()):
        if i == len(tensors) // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield named


sender = bascule.Sender(endpoint)
sender.register_model([bascule.TensorSpec(name, each.dtype, each.shape) for name, each in tensors.items()])
sender.wait_for_workers(1, 120)
tiny.train(model, 1)
assert sender.stream(tensors.items()).complete
tiny.train(model, 2)
sender.stream(until_killed())
