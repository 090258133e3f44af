"""An engine's end of the four verbs of vLLM's clients, without a model: its receiver takes a version."""

import tiny

import bascule


class Engine:
    def __init__(self):
        self.receiver, self.taken, self.finished = None, {}, 0

    def init_weight_transfer_engine(self, init_info):
        self.receiver = bascule.Receiver(init_info["endpoint"], worker="engine")

    def start_weight_update(self):
        self.taken = {}

    def update_weights(self, update_info):
        assert self.receiver.take(update_info["version"], update_info["timeout"]) == update_info["version"]
        self.taken = {name: tiny.digest(each) for name, each in self.receiver.weights().items()}
        self.receiver.finish()

    def finish_weight_update(self, weight_version=None):
        self.finished += 1
