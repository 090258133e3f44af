"""Which adapters an engine follows, and how a request names one.

One version of one adapter goes this way:

1. Each rank's receiver takes it (adapter_rank.py), and makes vLLM's LoRAModel of the tensors and the description, without
   files (adapter_model.py). What does not fit the engine is refused, before any rank has changed anything.
2. The engine core (adapter_core.py) gives the version its own name and id, such as math@7, so that no cached result of
   another version is used. All ranks activate it, and then acknowledge it.
3. A request names `math`. The engine core admits it with the newest version (adapter_versions.py), and it keeps that one
   until it ends.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from typing import Any

from .._checks import url
from ..errors import BasculeError

PREFIX = "bascule:"  # begins the lora_path of our requests; the adapter's name follows, or endpoint and version
FIRST_VERSION = 1 << 30  # the first id of a version, far above the ids that vLLM counts from 1
_ADAPTERS, _KEEP = "BASCULE_ADAPTERS", "BASCULE_ADAPTER_KEEP"


@dataclass(frozen=True)
class Configured:
    """What $BASCULE_ADAPTERS names: endpoints by the adapters' names, or a folder of endpoints."""

    named: dict[str, str] = field(default_factory=dict)
    folder: str = ""

    def __bool__(self) -> bool:
        return bool(self.named or self.folder)


def configured() -> Configured:
    """Reads $BASCULE_ADAPTERS. Raises BasculeError: INVALID_ARGUMENT."""
    value = os.environ.get(_ADAPTERS, "").strip()
    if "://" in value.partition("=")[0] and value.count("://") == 1:
        return Configured(folder=url(_ADAPTERS, value))
    found: dict[str, str] = {}
    followed = {_place(os.environ.get("BASCULE_ENDPOINT", "")): "the base model (BASCULE_ENDPOINT)"}
    for item in filter(None, map(str.strip, value.split(","))):
        name, _, endpoint = map(str.strip, item.partition("="))
        if not name or "@" in name or "://" in name or "://" not in endpoint:
            raise BasculeError(f"{_ADAPTERS}: expected NAME=URL,…, such as math=shm:///run/user/1000/grpo/adapters/math, or "
                               f"the URL of one folder of endpoints, found {item!r}", "INVALID_ARGUMENT")
        if name in found:
            raise BasculeError(f"{_ADAPTERS}: the name {name} occurs twice", "INVALID_ARGUMENT")
        found[name] = url(f"{_ADAPTERS}: {name}", endpoint)
        if (other := followed.setdefault(_place(endpoint), name)) != name:
            raise BasculeError(f"{_ADAPTERS}: {name} has the endpoint of {other}; give each its own: two receivers of one "
                               "engine would evict each other there", "INVALID_ARGUMENT")
    return Configured(named=found)


def _place(endpoint: str) -> str:
    """What two URLs of one endpoint have in common."""
    return endpoint.partition("?")[0].rstrip("/")


def versions_kept() -> int:
    """How many versions of each adapter an engine keeps, $BASCULE_ADAPTER_KEEP. Raises BasculeError: INVALID_ARGUMENT."""
    text = os.environ.get(_KEEP, "2")
    if not text.isascii() or not text.isdigit() or not int(text):
        raise BasculeError(f"{_KEEP}: expected a number of versions, 1 or more, found {text!r}", "INVALID_ARGUMENT")
    return int(text)


def adapter(name: str) -> Any:
    """The lora_request for LLM.generate() that names an adapter: the engine core puts its newest version in its place.

    If the engine does not follow such an adapter, or has no version of it yet, the request ends with an error whose
    stop_reason says so.
    """
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, FIRST_VERSION - 1 - zlib.crc32(name.encode()) % (1 << 20), f"{PREFIX}{name}")


def version_of(name: str, adapter_id: int, endpoint: str, version: int) -> Any:
    """The LoRARequest of one version."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, adapter_id, f"{PREFIX}{endpoint}#{version}")
