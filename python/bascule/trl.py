"""Sends the weights of an unmodified TRL trainer through Bascule.

    import bascule.trl
    bascule.trl.install("shm:///run/user/1000/grpo")       # before the trainer is made
    trainer = GRPOTrainer(…, args=GRPOConfig(use_vllm=True, vllm_mode="server", …))

The server is vLLM's own; it picks up new weights automatically:

    BASCULE_ENDPOINT=shm:///run/user/1000/grpo VLLM_SERVER_DEV_MODE=1 \\
        vllm serve MODEL --weight-transfer-config '{"backend":"bascule"}' …

If the trainer's model is a PEFT model, and the server follows its adapter, the adapter is sent alone:

    BASCULE_ADAPTERS=default=shm:///run/user/1000/grpo/adapters/default … vllm serve MODEL --enable-lora …
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _trl_async
from ._checks import seconds, text, url, whole
from ._streamed import check_served
from ._trl_adapters import NotAlone, adapter_endpoint
from ._trl_shards import Shards, is_sharded
from .errors import BasculeError, BasculeTimeoutError
from .lora import active_adapter, adapter_of, merged_of
from .modules import check_sendable
from .sender import Sender
from .tensors import TensorSpec

_logger = logging.getLogger("bascule")


def install(endpoint: str, *, workers: int | None = None, timeout: float = 180.0, adapter: str = "default") -> type:
    """Makes each TRL trainer that this process creates from now on send to `endpoint`. Returns the client class.

    It covers every trainer that sends with TRL's VLLMClient: GRPO, RLOO, distillation, online DPO and those built on
    them; and AsyncGRPOTrainer and AsyncDistillationTrainer, whose WeightTransferClient would send over NCCL. These two
    send merged weights of a PEFT model; if the server was started with --enable-lora and follows `endpoint`/adapters, they
    send each version of the adapter alone, under TRL's name for it.

    workers: how many vLLM workers a trainer waits for before each update, at most `timeout` seconds; default: as many as the
    server reports. adapter: the name under which the server has the adapter of a PEFT model. The adapter's own endpoint is
    `endpoint`/adapters/`adapter`. If the server follows no adapter of this name, or the adapter cannot be sent alone,
    merged weights are sent; a log line says which, and why. If FSDP2 shards the model, each rank sends the shards that it
    holds, without a gather; where they cannot be sent so, TRL gathers, and a log line says why. Only the weight methods of
    TRL's client, and sync_weights() for PEFT models and FSDP2, are replaced. A second call replaces the endpoint. Does not block.

    Raises BasculeError (INVALID_ARGUMENT), which names the argument.
    """
    url("endpoint", endpoint)
    workers = None if workers is None else whole("workers", workers, least=1)
    timeout = seconds("timeout", timeout)
    if not re.fullmatch(r"\w[\w.-]*", text("adapter", adapter)):
        raise BasculeError(f"adapter: expected a name of letters, digits, and the signs _ . -, found {adapter!r:.200}",
                           "INVALID_ARGUMENT")
    from trl.generation import vllm_client, vllm_generation

    present = vllm_client.VLLMClient
    original = next(each for each in present.__mro__ if not issubclass(each, _Weights))

    class BasculeVLLMClient(_Weights, original):
        bascule_endpoint, bascule_workers, bascule_timeout, bascule_adapter = endpoint, workers, timeout, adapter

    for name, module in list(sys.modules.items()):
        if name.startswith("trl.") and vars(module).get("VLLMClient") is present:  # also those that imported it
            module.VLLMClient = BasculeVLLMClient
    _trl_async.replace(endpoint, workers, timeout)
    generation = vllm_generation.VLLMGeneration
    if not hasattr(generation.sync_weights, "_before_bascule"):
        generation.sync_weights = _with_shards(_with_adapters(generation.sync_weights))
    return BasculeVLLMClient


def _with_shards(sync_weights: Callable[[Any], None]) -> Callable[[Any], None]:
    """Replaces VLLMGeneration.sync_weights() for models that FSDP2 shards: TRL's gathers each tensor on every rank."""
    from accelerate.utils import broadcast_object_list, is_peft_model

    @functools.wraps(sync_weights)
    def without_a_gather(self: Any) -> None:
        if self.mode != "server" or is_peft_model(self.model) or not is_sharded(self.model):
            return sync_weights(self)
        main = self.accelerator.is_main_process
        client = self.vllm_client if main and isinstance(self.vllm_client, _Weights) else None
        if not hasattr(self, "_bascule_shards"):
            ours = [client is not None]
            broadcast_object_list(ours, from_process=0)
            shards = Shards(self.model, client) if ours[0] else None
            self._bascule_shards = shards if shards is not None and shards.begin() else None
        if self._bascule_shards is None:
            return sync_weights(self)
        check_served(self._bascule_shards.send())

    without_a_gather._before_bascule = sync_weights
    return without_a_gather


def _with_adapters(sync_weights: Callable[[Any], None]) -> Callable[[Any], None]:
    """Replaces VLLMGeneration.sync_weights() for PEFT models.

    TRL's merges the adapter into the trainer's own weights for each update, and unmerges it again, which changes them a
    little each time.
    """
    from accelerate.utils import broadcast_object_list, is_peft_model

    @functools.wraps(sync_weights)
    def without_merging(self: Any) -> None:
        if self.mode != "server" or not is_peft_model(self.model):
            return sync_weights(self)
        main = self.accelerator.is_main_process
        if not hasattr(self, "_bascule_sends"):
            sends = [main and isinstance(self.vllm_client, _Weights) and self.vllm_client.register_adapted(self.model)]
            broadcast_object_list(sends, from_process=0)  # all ranks take the same way: TRL's is collective
            self._bascule_sends = sends[0]
        if not self._bascule_sends:
            return sync_weights(self)
        if main:
            self.vllm_client.send_adapted()

    without_merging._before_bascule = sync_weights
    return without_merging


class _Weights:
    """The weight methods of TRL's client, on a Sender. Each version holds all tensors of the model."""

    bascule_endpoint: str
    bascule_workers: int | None
    bascule_timeout: float
    bascule_adapter: str
    _ready = False  # whether init_communicator() was called
    _sender: Sender | None = None
    _alone = ""  # the endpoint of the adapter that is sent alone
    _workers = 0  # that each version needs; 0 before the first update
    _names: frozenset[str] = frozenset()
    _gathered: dict[str, Any] | None = None

    def init_communicator(self, device: Any = 0) -> None:
        """Checks the server. The first update takes the endpoint, and waits for the server's workers.

        Raises BasculeError: FAILED_PRECONDITION if the server was not started for Bascule.
        """
        info = self.get_server_info()
        extension = (info.get("parallel_config") or {}).get("worker_extension_cls")
        if (info.get("weight_transfer_config") or {}).get("backend") != "bascule" and extension != "bascule.vllm.WorkerExtension":
            raise BasculeError(f"the vLLM server at {self.base_url} does not take weights from Bascule; start it with "
                               f"""BASCULE_ENDPOINT={self.bascule_endpoint} and """
                               """--weight-transfer-config '{"backend":"bascule"}'""", "FAILED_PRECONDITION")
        self._ready = True

    def register_adapted(self, model: Any) -> bool:
        """Registers a PEFT model: its active adapter alone if the server follows that, else merged into the base model.

        Returns False, with a log line that says why, if neither is possible; TRL then merges by itself. Raises BasculeError
        as Sender does.
        """
        self._check_ready()
        try:
            endpoint = adapter_endpoint(self.bascule_endpoint, self.bascule_adapter)
            self._check_follows_adapter(endpoint)
            adapter_of(model, name := active_adapter(model))
        except NotAlone as reason:
            level, why = logging.INFO, str(reason)
        except BasculeError as error:
            level, why = logging.WARNING, str(error)
        else:
            self._register(endpoint, lambda sender: sender.register_adapter(model, name))
            self._alone = endpoint
            _logger.info("the adapter %s is sent alone to %s; requests name it %s", name, endpoint, self.bascule_adapter)
            return True
        try:
            merged = merged_of(model, active_adapter(model))
            check_sendable(model, {name: place.tensor for name, place in merged.places.items()})
        except BasculeError as error:
            _logger.warning("TRL merges the adapter into the trainer's weights for each update, and unmerges it again. It is not "
                            "sent alone: %s. It is not merged while it is sent: %s", why, error)
            return False
        self._register(self.bascule_endpoint, lambda sender: sender.register_model(model, adapters="merge"))
        _logger.log(level, "the adapter is sent merged into the base model, not alone: %s", why)
        return True

    def send_adapted(self) -> None:
        """Sends what register_adapted() has registered. Blocks until the server generates with it.

        Raises as update_named_params() does.
        """
        sender = self._sender
        if sender is None:
            raise BasculeError("the communicator was closed; make another trainer", "FAILED_PRECONDITION")
        self._wait_for_workers(sender)
        check_served(sender.send())
        if self._alone:
            self.model = self.bascule_adapter  # which later requests name

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
        self._ready, self._names, self._workers = False, frozenset(), 0
        if sender is not None:
            sender.close()

    # ----

    def _check_ready(self) -> None:
        if not self._ready:
            raise BasculeError("call init_communicator() first", "FAILED_PRECONDITION")

    def _check_follows_adapter(self, endpoint: str) -> None:
        if self.bascule_adapter not in (each["id"] for each in self._get(f"{self.base_url}/v1/models")["data"]):
            raise NotAlone(f"the server has no adapter {self.bascule_adapter}; start vLLM with --enable-lora and "
                            f"BASCULE_ADAPTERS={self.bascule_adapter}={endpoint}")

    def take_over(self, sender: Sender) -> None:
        """Keeps rank 0's sender of shards, and waits for the server's workers. close_communicator() closes the sender.

        Raises BasculeTimeoutError if the workers did not join in time.
        """
        self._check_ready()
        self._sender = sender
        self._wait_for_workers(sender)

    def _register(self, endpoint: str, register: Callable[[Sender], None]) -> None:
        sender = Sender(endpoint)
        try:
            register(sender)
        except BaseException:
            sender.close()
            raise
        self._sender = sender

    def _wait_for_workers(self, sender: Sender) -> None:
        """Also before later updates: a server that is started again takes its place."""
        if not self._workers:
            self._workers = self.bascule_workers or self.get_world_size()
            sender.expect_workers(self._workers)
        try:
            sender.wait_for_workers(self._workers, self.bascule_timeout)
        except BasculeTimeoutError as error:
            if not self._alone:
                raise
            raise BasculeTimeoutError(f"{error}; vLLM must have been started with BASCULE_ADAPTERS={self.bascule_adapter}="
                                      f"{self._alone}", error.code) from None

    def _send(self, metadata: Iterable[tuple[str, Any, Any]], named: Iterable[tuple[str, Any]]) -> None:
        self._check_ready()
        metadata = list(metadata)
        names = frozenset(name for name, _, _ in metadata)
        if not names:
            raise BasculeError("this update has no tensors; a version has all of the model's", "INVALID_ARGUMENT")
        if self._sender is None:
            specs = [TensorSpec(*each) for each in metadata]
            self._register(self.bascule_endpoint, lambda sender: sender.register_model(specs, rename=None))
            self._names = names
        elif left := self._names - names:
            raise BasculeError(f"{len(left)} tensors of the model are missing, such as {min(left)}: a version has all; "
                               "send single tensors within weight_update()", "INVALID_ARGUMENT")
        elif more := names - self._names:
            raise BasculeError(f"{len(more)} tensors, such as {min(more)}, were not in the first update, which "
                               "determines the model; call close_communicator(), then init_communicator()",
                               "INVALID_ARGUMENT")
        self._wait_for_workers(self._sender)
        check_served(self._sender.stream(named))
