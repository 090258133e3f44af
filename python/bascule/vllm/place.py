"""Under what name, and as which rank, a worker of vLLM joins an endpoint."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..errors import BasculeError


@dataclass(frozen=True)
class Place:
    """Arguments of a Receiver."""

    endpoint: str
    worker: str
    group: str
    rank: int
    ranks: int
    device: str
    stream: int


def place_of(vllm_config: Any, rank: int, device: Any, endpoint: str | None = None, worker: str | None = None) -> Place:
    """vllm_config: the worker's. rank: its own among all ranks of its engine. device: a torch.device.

    endpoint: default $BASCULE_ENDPOINT. worker: the engine's name, default $BASCULE_WORKER, else made of the host and
    the number that vLLM gives each engine. Replicas ("-dp1") and ranks ("-0") append theirs.

    It is called in the thread that runs the model, whose stream on a GPU is the one that reads: not the default one.
    """
    endpoint = endpoint or os.environ.get("BASCULE_ENDPOINT", "")
    if not endpoint:
        raise BasculeError('no endpoint: set BASCULE_ENDPOINT, or name it in init_info: {"endpoint": "shm:///…"}',
                           "INVALID_ARGUMENT")
    parallel = vllm_config.parallel_config
    engine = worker or os.environ.get("BASCULE_WORKER") or f"{socket.gethostname()}-{vllm_config.instance_id}"
    if parallel.data_parallel_size > 1:
        engine += f"-dp{parallel.data_parallel_index}"
    ranks = parallel.world_size  # of tensor and pipeline parallelism; replicas are engines of their own
    reads_on = str(device) if _core.keeps_slots_on_gpu(endpoint) else "cpu"
    return Place(endpoint, engine if ranks == 1 else f"{engine}-{rank}", engine if ranks > 1 else "",
                 rank if ranks > 1 else 0, ranks, reads_on, _stream(device))


def _stream(device: Any) -> int:
    if device.type != "cuda":
        return 0
    import torch

    return torch.cuda.current_stream(device).cuda_stream
