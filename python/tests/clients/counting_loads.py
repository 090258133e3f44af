"""A worker extension that counts how often vLLM has asked for the tensors of a version of an adapter."""

import bascule.vllm.adapter_rank

counted = 0
model = bascule.vllm.adapter_rank.Adapters._model


def counting(*arguments):
    global counted
    counted += 1
    return model(*arguments)


bascule.vllm.adapter_rank.Adapters._model = counting


class Extension:
    def adapter_loads(self):
        return counted
