"""Bascule in vLLM: `vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}'`, with BASCULE_ENDPOINT set.

vLLM finds register() by an entry point. engine.py is the backend, trainer.py its end in a trainer that uses vLLM's trainer
API, extension.py serves vLLM versions without backends, follow.py lets an engine follow automatically, and adapters.py
adds LoRA adapters. docs/guide/vllm.md explains their use.
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
        from vllm.distributed.weight_transfer import factory
    except ImportError:  # a vLLM without backends: WorkerExtension only
        return
    if "bascule" not in factory.WeightTransferEngineFactory._registry:
        factory.WeightTransferEngineFactory.register_engine("bascule", "bascule.vllm.engine", "BasculeWeightTransferEngine")
    trainers = getattr(factory, "WeightTransferTrainerFactory", None)  # before vLLM 0.32 there is none
    if trainers is not None and "bascule" not in trainers._registry:
        trainers.register_engine("bascule", "bascule.vllm.trainer", "BasculeTrainerEngine")
