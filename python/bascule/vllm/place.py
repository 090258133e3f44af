"""Determines under which name, and as which rank, a vLLM worker joins an endpoint."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..errors import BasculeError


@dataclass(frozen=True)
class Place:
    """The arguments of a vLLM worker's Receiver."""

    endpoint: str
    worker: str
    group: str
    rank: int
    ranks: int
    device: str
    stream: int


def place_of(vllm_config: Any, rank: int, device: Any, endpoint: str | None = None, worker: str | None = None) -> Place:
    """The place of the worker with this config, rank (among all ranks of its engine) and torch.device.

    endpoint: default $BASCULE_ENDPOINT. worker: the engine's name; default $BASCULE_WORKER, else the host's name and
    vLLM's instance id. Replicas append "-dp1", ranks "-0".

    Call it in the thread that runs the model: that thread's stream reads on a GPU, not the default stream. Raises
    BasculeError: INVALID_ARGUMENT without an endpoint; UNIMPLEMENTED if an engine of this kind would compute wrongly.
    """
    endpoint = endpoint or os.environ.get("BASCULE_ENDPOINT", "")
    if not endpoint:
        raise BasculeError('no endpoint: set BASCULE_ENDPOINT, or name it in init_info: {"endpoint": "shm:///…"}',
                           "INVALID_ARGUMENT")
    _check_kind(vllm_config, device)
    parallel = vllm_config.parallel_config
    engine = worker or os.environ.get("BASCULE_WORKER") or f"{socket.gethostname()}-{vllm_config.instance_id}"
    if _is_replica(parallel):
        engine += f"-dp{parallel.data_parallel_index}"
    ranks = parallel.world_size  # of tensor and pipeline parallelism; each replica is an engine
    reads_on = str(device) if _core.keeps_slots_on_gpu(endpoint) else "cpu"
    return Place(endpoint, engine if ranks == 1 else f"{engine}-{rank}", engine if ranks > 1 else "",
                 rank if ranks > 1 else 0, ranks, reads_on, _stream(device))


def _is_replica(parallel: Any) -> bool:
    """Whether the engine is one of several replicas. vLLM resets data_parallel_size to 1 if the model is dense."""
    return (parallel.data_parallel_size > 1 or parallel.data_parallel_index > 0
            or getattr(parallel, "data_parallel_rank_local", None) is not None)


def _check_kind(vllm_config: Any, device: Any) -> None:
    parallel, is_moe = vllm_config.parallel_config, getattr(vllm_config.model_config, "is_moe", False)
    if is_moe and device.type == "cpu":
        raise BasculeError("this model is a mixture of experts on the CPU: vLLM's reload leaves its experts' kernels "
                           "with other weights than a new engine has; use a GPU, or a dense model", "UNIMPLEMENTED")
    if is_moe and parallel.data_parallel_size > 1:
        raise BasculeError(f"data_parallel_size={parallel.data_parallel_size} for a mixture of experts: its replicas "
                           "share experts, and would compute one token with several versions; start separate engines, "
                           "each with its own BASCULE_WORKER", "UNIMPLEMENTED")
    if (others := getattr(parallel, "prefill_context_parallel_size", 1)) > 1:
        raise BasculeError(f"prefill_context_parallel_size={others}: expected ranks of tensor and pipeline "
                           "parallelism only", "UNIMPLEMENTED")


def _stream(device: Any) -> int:
    if device.type != "cuda":
        return 0
    import torch

    return torch.cuda.current_stream(device).cuda_stream
