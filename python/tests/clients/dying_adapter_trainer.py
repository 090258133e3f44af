"""Trainers of an adapter that are killed while they send their second version. Argument: the checkpoint's folder.

It says that it is ready. Then it forks a trainer for each line of JSON on stdin, which has the endpoint, the seed of the
first version, and when the trainer dies: "writing" (when half of the tensors are in the slot), a number of seconds after the
second version was published, or a path. The trainer makes a file at this path, and dies when held_adapter.py says that the
engine loads the version. Once it has died, a line on stdout has its exit code.
"""

import json
import os
import signal
import sys
import time

import bascule
from adapted import adapted, train


def trainer(checkpoint, endpoint, seed, moment):
    model = adapted(checkpoint)
    sender = bascule.Sender(endpoint)
    sender.register_adapter(model)
    sender.wait_for_workers(1, 120)
    train(model, seed)
    assert sender.send().complete
    train(model, seed + 1)
    if moment == "writing":
        sender._refuse_others = lambda call: None
        sender.stream(until_killed(model))
    if isinstance(moment, str):
        open(moment, "w").close()
        sender.send_async()
        while not os.path.exists(f"{moment}.held"):
            time.sleep(0.001)
    else:
        sender.send_async()
        time.sleep(moment)
    os.kill(os.getpid(), signal.SIGKILL)


def until_killed(model):
    tensors = {name.replace(".default", ""): each for name, each in model.named_parameters() if "lora_" in name}
    for number, named in enumerate(tensors.items()):
        if number == len(tensors) // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield named


print("ready", flush=True)
for line in sys.stdin:
    if not (child := os.fork()):
        trainer(sys.argv[1], *json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
