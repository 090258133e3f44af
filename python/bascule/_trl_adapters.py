"""Sends the adapters of TRL's asynchronous trainers alone, which TRL itself saves in folders that the server then reads."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import shutil
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ._streamed import check_served
from ._trl_shards import is_sharded
from .endpoint_folder import EndpointFolder
from .errors import BasculeError
from .lora import adapter_of
from .sender import Sender

_logger = logging.getLogger("bascule")
_CONTROL_TIMEOUT = 300  # seconds, as in TRL's client


class NotAlone(Exception):
    """Why an adapter is not sent alone."""


def adapter_endpoint(endpoint: str, adapter: str) -> str:
    """The endpoint of an adapter of the trainer at `endpoint`: ENDPOINT/adapters/ADAPTER, with the same options.

    Without an adapter, the folder of all of them. Raises NotAlone if the endpoint is reached over TCP.
    """
    parts = urlsplit(endpoint)
    if parts.netloc or "listen" in parse_qs(parts.query):
        raise NotAlone(f"{endpoint} is reached over TCP, and an adapter's endpoint is a folder below its base model's")
    place, mark, options = endpoint.partition("?")
    return f"{place.rstrip('/')}/adapters/{adapter}".rstrip("/") + mark + options


def replace(module: Any, endpoint: str, workers: int | None, timeout: float) -> None:
    """Makes the trainers of `module` send each version of an adapter to ENDPOINT/adapters/NAME, with NAME as TRL counts it.

    The server must follow the folder ENDPOINT/adapters. If it does not, or the adapter cannot be sent alone, TRL saves it in a
    folder and the server loads that, as without Bascule; a log line says why.
    """
    save = getattr(module.save_lora_adapter, "_before_bascule", module.save_lora_adapter)
    client = next(each for each in module.VLLMClient.__mro__ if not issubclass(each, _Client))
    saved: dict[str, tuple[Any, Any, str]] = {}  # what the next load_lora_adapter() sends, by its folder

    def save_later(model: Any, accelerator: Any, adapter_name: str, dest_dir: str) -> None:
        if is_sharded(model):
            if accelerator.is_main_process:
                _log_saved("FSDP2 shards the model")
            save(model, accelerator, adapter_name, dest_dir)  # with gathers, in which all ranks take part
        elif accelerator.is_main_process:
            saved[dest_dir] = model, accelerator, adapter_name

    class Client(_Client, client):
        bascule_endpoint, bascule_workers, bascule_timeout = endpoint, workers, timeout
        _saved, _save = saved, staticmethod(save)

    save_later._before_bascule = save
    module.save_lora_adapter, module.VLLMClient = save_later, Client


class _Client:
    """The adapter methods of these trainers' VLLMClient. Each adapter that the server holds has its own Sender."""

    bascule_endpoint: str
    bascule_workers: int | None
    bascule_timeout: float
    _saved: dict[str, tuple[Any, Any, str]]
    _save: Callable[..., None]
    _senders: dict[str, Sender] | None = None  # by name; None before the first version
    _by_trl = False  # whether TRL's folders are used

    def load_lora_adapter(self, lora_name: str, lora_path: str, timeout: int = 1800) -> None:
        """Blocks until the server serves, as `lora_name`, the adapter that the trainer has saved in `lora_path`.

        Raises BasculeError, which names the workers that do not serve it and why; BasculeTimeoutError if they did not join.
        """
        if (last := self._saved.pop(lora_path, None)) is None:
            return super().load_lora_adapter(lora_name, lora_path, timeout=timeout)
        model, accelerator, adapter = last
        if not self._by_trl:
            try:
                return self._send(model, adapter, lora_name)
            except NotAlone as reason:
                _log_saved(str(reason))
                self._by_trl = True
        self._save(model, accelerator, adapter, lora_path)
        super().load_lora_adapter(lora_name, lora_path, timeout=timeout)

    def unload_lora_adapter(self, lora_name: str, timeout: int = 1800) -> None:
        """Ends an adapter's endpoint. The server drops the adapter once no request uses it."""
        sender = (self._senders or {}).pop(lora_name, None)
        if sender is None:
            return super().unload_lora_adapter(lora_name, timeout=timeout)
        sender.close()
        _remove(adapter_endpoint(self.bascule_endpoint, lora_name))

    # ----

    def _send(self, model: Any, adapter: str, name: str) -> None:
        endpoint = adapter_endpoint(self.bascule_endpoint, name)
        if self._senders is None:
            _check_sendable(model, adapter)
            _remove_left(adapter_endpoint(self.bascule_endpoint, ""), name)
        workers = self.bascule_workers or self.get_world_size()
        sender = Sender(endpoint, expect_workers=workers)
        try:
            sender.register_adapter(model, adapter)
            self._check_followed(name)
            sender.wait_for_workers(workers, self.bascule_timeout)
            check_served(sender.send())
        except BaseException:
            sender.close()
            _remove(endpoint)
            raise
        self._senders = {**(self._senders or {}), name: sender}

    def _check_followed(self, name: str) -> None:
        import requests

        answer = requests.get(f"{self.server_url}/v1/models", timeout=_CONTROL_TIMEOUT)
        answer.raise_for_status()
        if name not in (each["id"] for each in answer.json()["data"]):
            raise NotAlone("the server does not follow the adapters of this run; start vLLM with --enable-lora and "
                           f"BASCULE_ADAPTERS={adapter_endpoint(self.bascule_endpoint, '')}")


@functools.cache  # once, not for each version
def _log_saved(why: str) -> None:
    _logger.warning("TRL saves the adapter in a folder, which the server reads; Bascule does not send it: %s", why)


def _check_sendable(model: Any, adapter: str) -> None:
    try:
        adapter_of(model, adapter)
    except BasculeError as error:
        raise NotAlone(str(error)) from error


def _remove_left(folder: str, name: str) -> None:
    """Removes what an earlier run left of the versions of this adapter: the engines would keep them."""
    versions = re.compile(re.escape(name.rpartition("-v")[0]) + r"-v[0-9]+")
    with EndpointFolder(folder) as there:
        for other, endpoint in there.endpoints().items():
            if versions.fullmatch(other):
                with contextlib.suppress(BasculeError):  # another trainer holds it
                    Sender(endpoint).close()
                    _remove(endpoint)


def _remove(endpoint: str) -> None:
    shutil.rmtree(unquote(urlsplit(endpoint).path), ignore_errors=True)
