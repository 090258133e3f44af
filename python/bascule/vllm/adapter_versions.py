"""The versions of an adapter in vLLM's engine core, and the requests that compute with them."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BasculeError
from .adapters import FIRST_VERSION, PREFIX, version_of
from .stop import end_with_reason

_MOST_GROUPS = 1024  # requests for several answers whose versions are remembered
_SHORTEST_WAIT, _LONGEST_WAIT = 0.5, 5.0  # seconds between two attempts after a failure
_SHARE = 0.75  # of load_timeout: after that time the sender evicts the engine


@dataclass
class Adapter:
    """One adapter that the engine follows."""

    endpoint: str
    joined: bool = False  # in all ranks
    versions: list[Any] = field(default_factory=list)  # LoRARequests, the newest last
    staged: tuple[int, Any, float] | None = None  # a version that waits for its place, its LoRARequest, and until when
    wait: float = 0.0  # seconds from the last failure to the next attempt
    again: float | None = 0.0  # when joining, or a refused version, is to be tried, as time.monotonic()
    moved: int = 0  # requests that were preempted and went on with a newer version
    error: str = ""  # why it could not be joined, or of the last refusal, until a version is served

    @property
    def patience(self) -> float:
        """How many seconds the requests of a version that gives way may take to end."""
        return _SHARE * load_timeout(self.endpoint)

    def failed(self, error: str) -> bool:
        """Sets when the next attempt is due. Returns whether the error is another one than before."""
        self.wait = min(max(2 * self.wait, _SHORTEST_WAIT), _LONGEST_WAIT)
        self.again = time.monotonic() + self.wait
        before, self.error = self.error, error
        return error != before


class Names:
    """Gives each version a name that no other version ever had in this engine: vLLM's caches are keyed by it."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}  # version by adapter
        self._id = FIRST_VERSION - 1

    def next_id(self) -> int:
        """An id that no version ever had."""
        self._id += 1
        return self._id

    def named(self, name: str, adapter_id: int, endpoint: str, version: int) -> Any:
        """The LoRARequest of a version: name@version, with a further number if a trainer has begun to count again."""
        own, highest = f"{name}@{version}", self._highest.get(name, 0)
        if version <= highest:
            own += f"-{adapter_id - FIRST_VERSION}"
        self._highest[name] = max(version, highest)
        return version_of(own, adapter_id, endpoint, version)


def held(scheduler: Any, versions: list[Any]) -> list[Any]:
    """The unfinished requests that compute with one of these versions."""
    ids = {each.lora_int_id for each in versions}
    return [each for each in scheduler.requests.values()
            if ids and each.lora_request and each.lora_request.lora_int_id in ids and not each.is_finished()]


def change(request: Any, version: Any) -> None:
    """Lets a request that is not running compute with `version`, by whose name its cached results are then found."""
    request.lora_request = version
    request.block_hashes.clear()
    request.update_block_hashes()


def check_engine(vllm_config: Any) -> None:
    """Raises BasculeError: FAILED_PRECONDITION if vLLM was not started for adapters, UNIMPLEMENTED for another vLLM."""
    from vllm.v1.request import Request

    if vllm_config.lora_config is None:
        raise BasculeError("BASCULE_ADAPTERS is set, and this engine has no room for adapters: start vLLM with --enable-lora, "
                           "and with --max-lora-rank for the trainer's rank", "FAILED_PRECONDITION")
    if not hasattr(Request, "update_block_hashes"):
        raise BasculeError("this version of vLLM keeps the keys of its prefix cache in a way that Bascule does not know "
                           "(Request.update_block_hashes), so adapters cannot follow", "UNIMPLEMENTED")


def admit_with_newest(core: Any, adapters: Mapping[str, Adapter]) -> None:
    """Admits requests that name one of `adapters` with its newest version; if there is none, they end with the reason."""
    add = core.scheduler.add_request
    groups: OrderedDict[str, Any] = OrderedDict()  # the versions of requests for several answers, the latest last

    def version_for(request: Any, adapter: Adapter) -> Any:
        """vLLM makes a request for n answers into n requests, 0_ID, 1_ID, …, which all get one version."""
        number, _, group = request.request_id.partition("_")
        if not number.isdigit() or not group:
            return adapter.versions[-1]
        version = groups.setdefault(group, adapter.versions[-1])
        if len(groups) > _MOST_GROUPS:
            groups.popitem(last=False)
        return version if version in adapter.versions else adapter.versions[-1]

    def admit(request: Any) -> None:
        wanted, why = request.lora_request, ""
        if wanted is not None and wanted.lora_path.startswith(PREFIX):
            adapter = adapters.get(wanted.lora_path.removeprefix(PREFIX))
            if adapter is None:
                why = f"this engine follows no adapter {wanted.lora_name}"
            elif adapter.versions:
                change(request, version_for(request, adapter))
            else:
                why = f"adapter {wanted.lora_name} has no version yet" + (f": {adapter.error}" if adapter.error else "")
        add(request)
        if why:
            end_with_reason(core, [request], why)

    core.scheduler.add_request = admit


def load_timeout(url: str) -> float:
    """The seconds of an endpoint's load_timeout, by default two minutes."""
    found = re.search(r"[?&]load_timeout=([^&]*)", url)
    parts = re.findall(r"([0-9.]+)(ms|us|ns|h|m|s)", found[1]) if found else [("2", "m")]
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return sum(float(number) * units[unit] for number, unit in parts)
