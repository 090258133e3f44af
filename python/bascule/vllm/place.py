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
    vLLM's instance id. Replicas after the first append "-dp1", "-dp2", …, and ranks "-0", "-1", ….

    Call it in the thread that runs the model: that thread's stream reads on a GPU, not the default stream. Raises
    BasculeError: INVALID_ARGUMENT without an endpoint, or without a name where vLLM's instance ids differ between the
    ranks of one engine; UNIMPLEMENTED for a mixture of experts or
    a quantised model on a CPU, and for a kind of parallelism in which not all ranks can agree on a version.
    """
    endpoint = endpoint or os.environ.get("BASCULE_ENDPOINT", "")
    if not endpoint:
        raise BasculeError('no endpoint: set BASCULE_ENDPOINT, or name it in init_info: {"endpoint": "shm:///…"}',
                           "INVALID_ARGUMENT")
    parallel = vllm_config.parallel_config
    _check_ranks_agree(parallel)
    if device.type == "cpu":
        _check_reloads_on_cpu(vllm_config.model_config)
    engine = worker or os.environ.get("BASCULE_WORKER")
    if not engine:
        if parallel.distributed_executor_backend == "external_launcher":
            raise BasculeError("no name for this engine: external_launcher gives each rank another instance id; "
                               "set BASCULE_WORKER to one name for all ranks of the engine", "INVALID_ARGUMENT")
        engine = f"{socket.gethostname()}-{vllm_config.instance_id}"
    if parallel.data_parallel_index > 0:  # not data_parallel_size, which vLLM resets to 1 in replicas of a dense model
        engine += f"-dp{parallel.data_parallel_index}"
    ranks = parallel.world_size  # of tensor and pipeline parallelism; each replica is an engine
    reads_on = str(device) if _core.keeps_slots_on_gpu(endpoint) else "cpu"
    return Place(endpoint, engine if ranks == 1 else f"{engine}-{rank}", engine if ranks > 1 else "",
                 rank if ranks > 1 else 0, ranks, reads_on, _stream(device))


def _check_ranks_agree(parallel: Any) -> None:
    for option, used in (("prefill_context_parallel_size", getattr(parallel, "prefill_context_parallel_size", 1) > 1),
                         ("enable_elastic_ep", getattr(parallel, "enable_elastic_ep", False))):
        if used:
            raise BasculeError(f"this engine uses {option}, under which versions were never tried: start it without, "
                               "with tensor, pipeline or data parallelism", "UNIMPLEMENTED")


def _check_reloads_on_cpu(model_config: Any) -> None:
    for what, is_it in (("a mixture of experts", getattr(model_config, "is_moe", False)),
                        (f"quantised ({model_config.quantization})", model_config.quantization is not None)):
        if is_it:
            raise BasculeError(f"this model is {what}: on a CPU, vLLM's reload gives its kernels other weights than "
                               "a fresh start; run it on a GPU, or serve a dense model in full precision",
                               "UNIMPLEMENTED")


def _stream(device: Any) -> int:
    if device.type != "cuda":
        return 0
    import torch

    return torch.cuda.current_stream(device).cuda_stream
