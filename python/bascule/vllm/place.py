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
    BasculeError: INVALID_ARGUMENT without an endpoint, or without a name where each rank has another instance id;
    UNIMPLEMENTED if an engine of this kind would compute wrongly.
    """
    endpoint = endpoint or os.environ.get("BASCULE_ENDPOINT", "")
    if not endpoint:
        raise BasculeError('no endpoint: set BASCULE_ENDPOINT, or name it in init_info: {"endpoint": "shm:///…"}',
                           "INVALID_ARGUMENT")
    _check_kind(vllm_config, device)
    parallel = vllm_config.parallel_config
    engine = worker or os.environ.get("BASCULE_WORKER")
    if not engine:
        if getattr(parallel, "distributed_executor_backend", None) == "external_launcher":
            raise BasculeError("no name for this engine: external_launcher gives each rank another instance id; "
                               "set BASCULE_WORKER to one name for all ranks of the engine", "INVALID_ARGUMENT")
        engine = f"{socket.gethostname()}-{vllm_config.instance_id}"
    if _is_replica(parallel):
        engine += f"-dp{parallel.data_parallel_index}"
    ranks = parallel.world_size  # of tensor and pipeline parallelism; each replica is an engine
    reads_on = str(device) if _core.keeps_slots_on_gpu(endpoint) else "cpu"
    return Place(endpoint, engine if ranks == 1 else f"{engine}-{rank}", engine if ranks > 1 else "",
                 rank if ranks > 1 else 0, ranks, reads_on, _stream(device))


def _is_replica(parallel: Any) -> bool:
    """Whether the engine is one of several replicas.

    If the model is dense, vLLM resets data_parallel_size to 1 in each replica; elastic_ep_max_dp_size keeps the number.
    """
    number = max(parallel.data_parallel_size, getattr(parallel, "elastic_ep_max_dp_size", None) or 1)
    return number > 1 or parallel.data_parallel_index > 0


def _check_kind(vllm_config: Any, device: Any) -> None:
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    is_moe = getattr(model, "is_moe", False)
    kinds = {"a mixture of experts": is_moe, f"quantised ({model.quantization})": model.quantization is not None}
    if device.type == "cpu" and (kind := next((kind for kind, applies in kinds.items() if applies), None)):
        raise BasculeError(f"this model is {kind}: on a CPU, vLLM's reload gives its kernels other weights than a new "
                           "engine has; use a GPU, or a dense model in full precision", "UNIMPLEMENTED")
    if is_moe and parallel.data_parallel_size > 1:
        raise BasculeError(f"data_parallel_size={parallel.data_parallel_size} for a mixture of experts: its replicas "
                           "share experts, and would compute one token with several versions; start separate engines, "
                           "each with its own BASCULE_WORKER", "UNIMPLEMENTED")
    if (others := getattr(parallel, "prefill_context_parallel_size", 1)) > 1:
        raise BasculeError(f"prefill_context_parallel_size={others}: expected ranks of tensor and pipeline "
                           "parallelism only", "UNIMPLEMENTED")
    if getattr(parallel, "enable_elastic_ep", False):
        raise BasculeError("enable_elastic_ep: expected an engine whose ranks stay the same", "UNIMPLEMENTED")


def _stream(device: Any) -> int:
    if device.type != "cuda":
        return 0
    import torch

    return torch.cuda.current_stream(device).cuda_stream
