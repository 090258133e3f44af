"""A worker extension with which vLLM on a CPU leaves linear layers to torch, as on machines without oneDNN.

With oneDNN it packs their weights into separate memory, which only the model's loader can fill.
"""

from vllm import _custom_ops

_custom_ops._supports_onednn = False  # vLLM imports this module before it makes the model


class Extension:
    pass
