"""Sends the weights of an unmodified TRL trainer through Bascule.

    import bascule.trl
    bascule.trl.install("shm:///run/user/1000/grpo")       # before the trainer is made
    trainer = GRPOTrainer(…, args=GRPOConfig(use_vllm=True, vllm_mode="server", …))

The server is vLLM's own; it picks up new weights automatically:

    BASCULE_ENDPOINT=shm:///run/user/1000/grpo VLLM_SERVER_DEV_MODE=1 \\
        vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}' …
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ._checks import seconds, url, whole
from .errors import BasculeError
from .sender import Sender
from .tensors import TensorSpec


def install(endpoint: str, *, workers: int | None = None, timeout: float = 180.0) -> type:
    """Makes each TRL trainer that this process creates from now on send to `endpoint`. Returns the client class.

    It covers every trainer that sends with TRL's VLLMClient: GRPO, RLOO, distillation, online DPO and those built on
    them. AsyncGRPOTrainer and AsyncDistillationTrainer do not: their own WeightTransferClient sends over NCCL.

    workers: how many vLLM workers a trainer waits for, at most `timeout` seconds; default: as many as the server
    reports. Only the weight methods of TRL's client are replaced. A second call replaces the endpoint. Does not block.

    Raises BasculeError (INVALID_ARGUMENT), which names the argument.
    """
    url("endpoint", endpoint)
    workers = None if workers is None else whole("workers", workers, least=1)
    timeout = seconds("timeout", timeout)
    from trl.generation import vllm_client, vllm_generation  # noqa: F401  vllm_generation has its own reference

    present = vllm_client.VLLMClient
    original = next(each for each in present.__mro__ if not issubclass(each, _Weights))

    class BasculeVLLMClient(_Weights, original):
        bascule_endpoint, bascule_workers, bascule_timeout = endpoint, workers, timeout

    for name, module in list(sys.modules.items()):
        if name.startswith("trl.") and vars(module).get("VLLMClient") is present:  # also those that imported it
            module.VLLMClient = BasculeVLLMClient
    return BasculeVLLMClient


class _Weights:
    """The weight methods of TRL's client, on a Sender. Each version holds all tensors of the model."""

    bascule_endpoint: str
    bascule_workers: int | None
    bascule_timeout: float
    _sender: Sender | None = None
    _names: frozenset[str] = frozenset()
    _gathered: dict[str, Any] | None = None

    def init_communicator(self, device: Any = 0) -> None:
        """Takes the endpoint. Does not wait for the server's workers; the first update waits for them.

        Raises BasculeError: FAILED_PRECONDITION if the server was not started for Bascule; or as Sender does.
        """
        transfer = self.get_server_info()["weight_transfer_config"]
        extension = self.get_server_info()["parallel_config"].get("worker_extension_cls")
        if (transfer or {}).get("backend") != "bascule" and extension != "bascule.vllm.WorkerExtension":
            raise BasculeError(f"the vLLM server at {self.base_url} does not take weights from Bascule; start it with "
                               f"""BASCULE_ENDPOINT={self.bascule_endpoint} and """
                               """--weight-transfer-config '{"backend":"bascule"}'""", "FAILED_PRECONDITION")
        self._sender, self._names = Sender(self.bascule_endpoint), frozenset()

    @contextmanager
    def weight_update(self) -> Iterator[None]:
        """Copies the tensor of each update_named_param() in its `with` block; at the end sends all as one version."""
        if self._gathered is not None:
            raise BasculeError("weight_update: another one is in progress", "FAILED_PRECONDITION")
        self._gathered = {}
        try:
            yield
            gathered = self._gathered
        finally:
            self._gathered = None
        self._send([(name, tensor.dtype, tensor.shape) for name, tensor in gathered.items()], gathered.items())

    def update_named_param(self, name: str, weights: Any) -> None:
        """Adds one tensor to the version of a weight_update().

        Raises BasculeError: FAILED_PRECONDITION outside of weight_update(), since a version has all tensors.
        """
        if self._gathered is None:
            raise BasculeError(f"update_named_param: {name} alone is not a whole version; update all tensors within "
                               "weight_update()", "FAILED_PRECONDITION")
        self.update_named_params([(name, weights.dtype, list(weights.shape))], iter([(name, weights)]))

    def update_named_params(self, metadata: list[tuple[str, Any, list[int]]],
                            named_params: Iterator[tuple[str, Any]]) -> None:
        """Sends all tensors, keeping only one alive at a time. Blocks until the server generates with them.

        The first update determines which tensors the model has, until close_communicator(). Raises BasculeError:
        UNAVAILABLE names the workers that do not serve the version; INVALID_ARGUMENT if tensors are missing or new; or
        as Sender.stream() does. Raises BasculeTimeoutError if the workers did not join in time.
        """
        if self._gathered is not None:
            self._gathered.update((name, tensor.detach().clone()) for name, tensor in named_params)
            return
        self._send(metadata, named_params)

    def update_model_params(self, model: Any) -> None:
        """Like update_named_params(), for all of a module's parameters."""
        self.update_named_params([(name, each.dtype, list(each.shape)) for name, each in model.named_parameters()],
                                 ((name, each.data) for name, each in model.named_parameters()))

    def close_communicator(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _send(self, metadata: Iterable[tuple[str, Any, Any]], named: Iterable[tuple[str, Any]]) -> None:
        if self._sender is None:
            raise BasculeError("call init_communicator() first", "FAILED_PRECONDITION")
        metadata = list(metadata)
        names = frozenset(name for name, _, _ in metadata)
        if not names:
            raise BasculeError("this update has no tensors; a version has all of the model's", "INVALID_ARGUMENT")
        if not self._names:
            self._sender.register_model([TensorSpec(*each) for each in metadata], rename=None)
            self._names = names
            workers = self.bascule_workers or self.get_world_size()
            self._sender.expect_workers(workers)
            self._sender.wait_for_workers(workers, self.bascule_timeout)
        elif left := self._names - names:
            raise BasculeError(f"{len(left)} tensors of the model are missing, such as {min(left)}: a version has all; "
                               "send single tensors within weight_update()", "INVALID_ARGUMENT")
        elif more := names - self._names:
            raise BasculeError(f"{len(more)} tensors, such as {min(more)}, were not in the first update, which "
                               "determines the model; call close_communicator(), then init_communicator()",
                               "INVALID_ARGUMENT")
        report = self._sender.stream(named)
        if not report.complete:
            raise BasculeError(f"version {report.version} is not served by all workers: {report.why_incomplete}",
                               "UNAVAILABLE")
