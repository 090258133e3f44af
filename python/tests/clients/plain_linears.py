"""A worker extension by which vLLM on a CPU leaves linear layers to torch, as on machines for which it has no oneDNN.

With oneDNN it packs their weights into memory of its own, which only the model's loader can fill.
"""

from vllm import _custom_ops

_custom_ops._supports_onednn = False  # vLLM imports this module before it makes the model


class Extension:
    pass
