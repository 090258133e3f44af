"""Bascule in vLLM: `vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}'`, with BASCULE_ENDPOINT set.

vLLM finds register() by an entry point. engine.py is the backend, extension.py serves vLLM versions without backends,
follow.py lets an engine follow automatically, and adapters.py adds LoRA adapters. docs/guide/vllm.md explains their use.
"""

from __future__ import annotations

from .adapters import adapter
from .extension import WorkerExtension

__all__ = ["WorkerExtension", "adapter", "register"]


def register() -> None:
    """Registers Bascule with vLLM, which calls this in each of its processes, sometimes repeatedly. Does not block."""
    from . import follow

    follow.install()
    try:
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    except ImportError:  # a vLLM without backends: WorkerExtension only
        return
    if "bascule" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("bascule", "bascule.vllm.engine", "BasculeWeightTransferEngine")
