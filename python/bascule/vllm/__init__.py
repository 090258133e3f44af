"""Bascule in vLLM: `vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}'`, with BASCULE_ENDPOINT set.

vLLM finds register() by an entry point. engine.py is the backend, extension.py the way in for vLLMs without backends,
follow.py what lets an engine follow by itself. docs/guide/vllm.md tells how to use them.
"""

from __future__ import annotations

from .extension import WorkerExtension

__all__ = ["WorkerExtension", "register"]


def register() -> None:
    """vLLM calls it in each of its processes, in some more than once."""
    from . import follow

    follow.install()
    try:
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    except ImportError:  # a vLLM without backends: WorkerExtension only
        return
    if "bascule" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("bascule", "bascule.vllm.engine", "BasculeWeightTransferEngine")
