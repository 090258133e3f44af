"""What bascule.trl puts in place of the WeightTransferClient of TRL's asynchronous trainers, which sends over NCCL."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

from . import _trl_adapters
from ._streamed import stream_and_update
from .errors import BasculeError
from .sender import Sender
from .tensors import TensorSpec

MODULES = ("async_grpo.async_grpo_trainer", "async_distillation.async_distillation_trainer")  # of trl.experimental
_CONTROL_TIMEOUT = 300  # seconds, as in TRL's client


class AsyncWeights:
    """The methods that the trainer calls on rank 0. The server's engines join the endpoint, and each version has all tensors."""

    bascule_endpoint: str
    bascule_workers: int | None
    bascule_timeout: float

    def __init__(self, vllm_client: Any, weight_update_info: dict[str, Any], weight_sync_timeout: int = 1800):
        self.vllm = vllm_client
        self._names = list(zip(*(weight_update_info[each] for each in ("names", "dtype_names", "shapes"))))
        self._timeout = weight_sync_timeout
        self._sender: Sender | None = None

    def init_weight_transfer(self) -> None:
        """Takes the endpoint, and waits until the server's workers have joined it. Called once.

        Raises BasculeError as Sender() does; FAILED_PRECONDITION if the server was not started for Bascule.
        BasculeTimeoutError names the workers that have joined.
        """
        self.vllm.wait_for_server_ready()
        transfer = self.vllm.get_server_info().get("weight_transfer_config") or {}
        if transfer.get("backend") != "bascule":
            raise BasculeError(f"the vLLM server at {self.vllm.server_url} does not take weights from Bascule; start it with "
                               """--weight-transfer-config '{"backend":"bascule"}'""", "FAILED_PRECONDITION")
        workers = self.bascule_workers or self.vllm.get_world_size()
        sender = Sender(self.bascule_endpoint, expect_workers=workers)
        try:
            sender.register_model([TensorSpec(*each) for each in self._names], rename=None)
            self.vllm.init_weight_transfer_engine({"endpoint": self.bascule_endpoint}, timeout=self._timeout)
            sender.wait_for_workers(workers, self.bascule_timeout)
        except BaseException:
            sender.close()
            raise
        self._sender = sender

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Sends a version. Blocks until the server has loaded it.

        If it fails, the iterator is still read to its end, since the other ranks take part in its gathers.

        Raises BasculeError, which names the workers that do not serve the version and why; what the server's routes raised.
        """
        if self._sender is None:
            raise BasculeError("call init_weight_transfer() first", "FAILED_PRECONDITION")
        try:
            stream_and_update(self._sender, len(self._names), iterator, self._update)
        finally:
            for _ in iterator:
                pass
        self.vllm.finish_weight_update(timeout=self._timeout)

    def pause(self) -> None:
        """Freezes the server's requests."""
        self.vllm.pause(timeout=_CONTROL_TIMEOUT)

    def resume(self) -> None:
        """Lets the server's requests continue, with the new weights."""
        self.vllm.resume(timeout=_CONTROL_TIMEOUT)

    def destroy(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        if self._sender is not None:
            self._sender.close()

    def _update(self, version: int) -> None:
        self.vllm.start_weight_update(timeout=_CONTROL_TIMEOUT)
        self.vllm.update_weights({"version": version, "timeout": self.bascule_timeout}, timeout=self._timeout)


def replace(endpoint: str, workers: int | None, timeout: float) -> None:
    """Makes the asynchronous trainers that this process creates from now on send to `endpoint`.

    Imports their modules. Leaves out those that this TRL does not have, or whose packages are missing.
    """
    class Weights(AsyncWeights):
        bascule_endpoint, bascule_workers, bascule_timeout = endpoint, workers, timeout

    for name in MODULES:
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that they are experimental: their user imports them too
            module = importlib.import_module(f"trl.experimental.{name}")
            if hasattr(module, "WeightTransferClient"):
                module.WeightTransferClient = Weights
            if hasattr(module, "save_lora_adapter"):
                _trl_adapters.replace(module, endpoint, workers, timeout)
