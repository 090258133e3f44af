"""Lets vLLM's API server list the adapters that the engine follows, and admit requests that name one."""

from __future__ import annotations

import functools
import logging
import select
from collections.abc import Iterator
from typing import Any

from ..endpoint_folder import EndpointFolder
from ..errors import BasculeError
from .adapters import PREFIX, Configured, adapter

_logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


def install(configured: Configured) -> None:
    """Wraps vLLM's list of models, which has no hook for this. A second call does nothing."""
    try:
        from vllm.entrypoints.openai.models.serving import OpenAIServingModels
    except ImportError as error:  # a vLLM without it, or without its API server; LLM.generate() does not need it
        _logger.warning("this vLLM's API server cannot list adapters that follow: %s", error)
        return
    if hasattr(OpenAIServingModels.__init__, "_before_bascule"):
        return
    make = OpenAIServingModels.__init__

    @functools.wraps(make)
    def with_adapters(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        self.lora_requests = _Requests(self.lora_requests, configured, self.is_base_model)

    with_adapters._before_bascule = make
    OpenAIServingModels.__init__ = with_adapters


class _Requests(dict):
    """vLLM's adapters by name, with ours among them. Adapters of a folder are looked up whenever vLLM looks for one."""

    def __init__(self, others: dict[str, Any], configured: Configured, is_base_model: Any):
        super().__init__(others)
        self._is_base_model = is_base_model
        self._folder = EndpointFolder(configured.folder) if configured.folder else None
        self._changed = select.poll()
        if self._folder is not None:
            self._changed.register(self._folder.fileno(), select.POLLIN)
            self._list()
        for name in configured.named:
            if is_base_model(name):
                raise BasculeError(f"BASCULE_ADAPTERS: {name} is also the name of the base model", "INVALID_ARGUMENT")
            self[name] = adapter(name)

    def __contains__(self, name: object) -> bool:
        self._look()
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._look()
        return super().__iter__()

    def values(self) -> Any:
        self._look()
        return super().values()

    def _look(self) -> None:
        if self._changed.poll(0):
            self._list()

    def _list(self) -> None:
        try:
            there = {name for name in self._folder.endpoints() if not self._is_base_model(name)}
        except BasculeError as error:
            _logger.warning("the list of adapters stays as it is: %s", error)
            return
        own = {name for name, each in super().items() if each.lora_path == f"{PREFIX}{name}"}
        for name in own - there:
            del self[name]
        for name in there - set(super().keys()):
            self[name] = adapter(name)
