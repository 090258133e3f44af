"""Bascule under an unmodified trainer of TRL's.

    import bascule.trl
    bascule.trl.install("shm:///run/user/1000/grpo")       # before the trainer is made
    trainer = GRPOTrainer(…, args=GRPOConfig(use_vllm=True, vllm_mode="server", …))

The server is vLLM's own, and follows the endpoint by itself:

    BASCULE_ENDPOINT=shm:///run/user/1000/grpo VLLM_SERVER_DEV_MODE=1 \\
        vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}' …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import BasculeError
from .sender import Sender
from .tensors import TensorSpec


def install(endpoint: str, *, workers: int | None = None, timeout: float = 180.0) -> type:
    """TRL's trainers of this process send their weights to `endpoint` from now on. Returns the client that does so.

    workers: how many workers of vLLM the trainer waits for, `timeout` seconds at most; default: as many as the server
    says it has. All of the client that is not about weights stays TRL's. A second call replaces the endpoint.
    """
    from trl.generation import vllm_generation
    from trl.generation.vllm_client import VLLMClient

    class BasculeVLLMClient(_Weights, VLLMClient):
        bascule_endpoint, bascule_workers, bascule_timeout = endpoint, workers, timeout

    vllm_generation.VLLMClient = BasculeVLLMClient
    return BasculeVLLMClient


class _Weights:
    """What TRL's client does about weights, by a Sender; versions are whole: all tensors of the model, each time."""

    bascule_endpoint: str
    bascule_workers: int | None
    bascule_timeout: float
    _sender: Sender | None = None
    _names: frozenset[str] = frozenset()
    _gathered: dict[str, Any] | None = None

    def init_communicator(self, device: Any = 0) -> None:
        """Takes the endpoint. The first update waits for the server's workers."""
        transfer = self.get_server_info()["weight_transfer_config"]
        extension = self.get_server_info()["parallel_config"].get("worker_extension_cls")
        if (transfer or {}).get("backend") != "bascule" and extension != "bascule.vllm.WorkerExtension":
            raise BasculeError(f"the vLLM server at {self.base_url} has another way for weights; start it with "
                               f"""BASCULE_ENDPOINT={self.bascule_endpoint} and """
                               """--weight-transfer-config '{"backend":"bascule"}'""", "FAILED_PRECONDITION")
        self._sender = Sender(self.bascule_endpoint)

    @contextmanager
    def weight_update(self) -> Iterator[None]:
        """Within it each update_named_param() keeps a copy; they are sent at its end, as one version."""
        if self._gathered is not None:
            raise BasculeError("weight_update: one is under way", "FAILED_PRECONDITION")
        self._gathered = {}
        try:
            yield
            gathered = self._gathered
        finally:
            self._gathered = None
        self._send([(name, tensor.dtype, tensor.shape) for name, tensor in gathered.items()], gathered.items())

    def update_named_param(self, name: str, weights: Any) -> None:
        self.update_named_params([(name, weights.dtype, list(weights.shape))], iter([(name, weights)]))

    def update_named_params(self, metadata: list[tuple[str, Any, list[int]]],
                            named_params: Iterator[tuple[str, Any]]) -> None:
        """One gathered tensor is alive at a time. Returns once the server generates with these weights."""
        if self._gathered is not None:
            self._gathered.update((name, tensor.detach().clone()) for name, tensor in named_params)
            return
        self._send(metadata, named_params)

    def update_model_params(self, model: Any) -> None:
        self.update_named_params([(name, each.dtype, list(each.shape)) for name, each in model.named_parameters()],
                                 ((name, each.data) for name, each in model.named_parameters()))

    def close_communicator(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _send(self, metadata: Iterable[tuple[str, Any, Any]], named: Iterable[tuple[str, Any]]) -> None:
        if self._sender is None:
            raise BasculeError("init_communicator() comes first", "FAILED_PRECONDITION")
        metadata = list(metadata)
        if not self._names:
            self._sender.register_model([TensorSpec(*each) for each in metadata], rename=None)
            self._names = frozenset(name for name, _, _ in metadata)
            self._sender.wait_for_workers(self.bascule_workers or self.get_world_size(), self.bascule_timeout)
        elif left := self._names.difference(name for name, _, _ in metadata):
            raise BasculeError(f"{len(left)} tensors of the model are missing, as {min(left)}: a version is whole; "
                               "gather single tensors within weight_update()", "INVALID_ARGUMENT")
        report = self._sender.stream(named)
        if not report.complete:
            errors = [f"{each.worker}: {each.error}" for each in report.workers if each.error is not None]
            raise BasculeError(f"version {report.version} is not served by all workers: {'; '.join(errors)}",
                               "UNAVAILABLE")
