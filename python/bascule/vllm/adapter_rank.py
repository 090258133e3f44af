"""The adapters that one vLLM worker follows. The engine core calls these functions in all workers at once.

A version is staged (taken from its receiver and made into vLLM's LoRAModel), then activated, then acknowledged or refused.
Only staging can find that a version does not fit, and it changes nothing of what the engine serves.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BasculeError, text_of
from ..receiver import Receiver
from .adapter_model import lora_model, unbound
from .adapters import PREFIX
from .busy_loop import send_descriptor
from .place import Place, place_of
from .together import from_first_rank, taken_together


@dataclass(frozen=True)
class Staged:
    """One rank's result: which adapter has which new version (0: none), the error if it cannot be served, and the
    modules that this rank did not find, of how many."""

    name: str = ""
    version: int = 0
    error: str = ""
    unbound: frozenset[str] = frozenset()
    modules: int = 0


class Adapters:
    """One worker's adapters."""

    def __init__(self, worker: Any):
        self._worker = worker
        self._manager = worker.model_runner.lora_manager
        self._receivers: dict[str, tuple[Place, Receiver]] = {}
        self._staged: dict[str, Any] = {}  # by adapter
        self._models: dict[int, Any] = {}  # by id; vLLM may evict one and ask for it again
        self._pending = select.epoll()  # has the eventfds of the receivers that may have a new version
        self._names: dict[int, str] = {}  # by descriptor
        self._watched: set[str] = set()
        load = self._manager._load_adapter
        self._manager._load_adapter = lambda request: (
            self._model(request) if request.lora_path.startswith(PREFIX) else load(request))

    def join(self, name: str, endpoint: str) -> None:
        """Joins an endpoint. Does not block."""
        self.leave(name)  # an attempt that failed in another rank
        place = place_of(self._worker.vllm_config, self._worker.rank, self._worker.device, endpoint)
        receiver = Receiver(endpoint, worker=place.worker, group=place.group, rank=place.rank, ranks=place.ranks,
                            device=place.device, stream=place.stream)
        self._receivers[name] = place, receiver
        self._names[receiver.fileno()] = name
        self.watch(name)

    def leave(self, name: str) -> None:
        """Leaves an endpoint, if it was joined. The versions that vLLM has stay until drop()."""
        if name not in self._receivers:
            return
        self.watch(name, on=False)
        self._staged.pop(name, None)
        _, receiver = self._receivers.pop(name)
        self._names.pop(receiver.fileno(), None)
        receiver.close()

    def fileno(self) -> int:
        """A descriptor that is readable when stage() may have work."""
        return self._pending.fileno()

    def watch(self, name: str, on: bool = True) -> None:
        """Lets fileno() show, or not show, that an adapter may have a new version."""
        descriptor = self._receivers[name][1].fileno()
        if on and name not in self._watched:
            self._pending.register(descriptor, select.EPOLLIN)
            self._watched.add(name)
        elif not on and name in self._watched:
            self._pending.unregister(descriptor)
            self._watched.remove(name)

    def stage(self, adapter_id: int) -> Staged:
        """Takes one new version of one adapter, the one that rank 0 chooses. Returns errors instead of raising them."""
        ready = self._pending.poll(0, 1)
        name = self._names[ready[0][0]] if ready else ""
        if self._worker.vllm_config.parallel_config.world_size > 1:
            name = from_first_rank(name)
        if not name:
            return Staged()
        version = 0
        try:
            version = taken_together(*self._receivers[name], 0, None, 0) or 0
            if not version:
                return Staged()
            self.watch(name, on=False)
            receiver = self._receivers[name][1]
            made = lora_model(self._manager, self._worker.model_runner.model_config, adapter_id, receiver.weights(),
                              receiver.description)
            self._staged[name] = made
            return Staged(name, version, "", frozenset(unbound(self._manager, made)), len(made.loras))
        except Exception as error:
            return Staged(name, version, text_of(error))

    def activate(self, name: str, request: Any) -> str:
        """Gives a staged version to vLLM. Returns the error, if any."""
        try:
            self._models[request.lora_int_id] = self._staged.pop(name)
            self._manager.add_adapter(request)
            return ""
        except Exception as error:
            return text_of(error)

    def finish(self, name: str, error: str, request: Any, dropped: Iterable[Any] = (), moved: Iterable[str] = ()) -> None:
        """Acknowledges the version, which replaces those `dropped`; or refuses it with the reason.

        request: the version's, if it was to be activated. moved: the requests that go on with it.
        """
        self._staged.pop(name, None)
        self.drop([request] if error and request else dropped)
        # vLLM's first model runner remembers requests that are preempted; its second one gets them anew.
        held = getattr(self._worker.model_runner, "requests", None) or {}
        for request_id in moved:
            if request_id in held:
                held[request_id].lora_request = request
        self._receivers[name][1].finish(BasculeError(error, "INVALID_ARGUMENT") if error else None)
        self.watch(name, on=not error)

    def drop(self, versions: Iterable[Any]) -> None:
        """Forgets versions, which no request uses any longer."""
        for each in versions:
            self._manager.remove_adapter(each.lora_int_id)
            self._models.pop(each.lora_int_id, None)

    def _model(self, request: Any) -> Any:
        if (model := self._models.get(request.lora_int_id)) is None:
            raise BasculeError(f"{request.lora_name} is no longer here", "NOT_FOUND")
        return model


def start(worker: Any, address: str) -> None:
    """Comes first. Rank 0's worker passes the descriptor that says when stage() may have work."""
    worker.bascule_adapters = Adapters(worker)
    if worker.rank == 0:
        send_descriptor(address, worker.bascule_adapters.fileno())


def join(worker: Any, endpoints: Mapping[str, str]) -> dict[str, str]:
    """Joins each of the endpoints that it can. Returns the errors of the others."""
    errors = {}
    for name, endpoint in endpoints.items():
        try:
            worker.bascule_adapters.join(name, endpoint)
        except Exception as error:
            errors[name] = text_of(error)
    return errors


def leave(worker: Any, names: Iterable[str]) -> None:
    for name in names:
        worker.bascule_adapters.leave(name)


def stage(worker: Any, adapter_id: int, again: Iterable[str]) -> Staged:
    """Adapters.stage(), after those `again` may be taken once more that were refused."""
    for name in again:
        worker.bascule_adapters.watch(name)
    return worker.bascule_adapters.stage(adapter_id)


def activate(worker: Any, *arguments: Any) -> str:
    return worker.bascule_adapters.activate(*arguments)


def finish(worker: Any, *arguments: Any) -> None:
    worker.bascule_adapters.finish(*arguments)


def drop(worker: Any, versions: Iterable[Any]) -> None:
    worker.bascule_adapters.drop(versions)
