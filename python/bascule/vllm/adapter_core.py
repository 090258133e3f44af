"""Follows adapters in vLLM's engine core: which versions there are, and when each of them is served.

A thread waits for new versions, and for endpoints that come and go in a folder. It then calls the busy loop, where all the
rest runs, between two steps of the scheduler. A failure leaves the versions that are served as they are.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from typing import Any

from ..endpoint_folder import EndpointFolder
from ..errors import BasculeError
from . import adapter_rank
from .adapters import Configured, versions_kept
from .adapter_versions import Adapter, Names, admit_with_newest, change, held
from .busy_loop import BusyLoop, descriptor_of_rank_0

_PAUSE = 0.02  # seconds between two looks
_PAUSE_ASLEEP, _PAUSE_AFTER_FAILURE = 0.5, 5.0  # seconds

_logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


class AdapterFollower:
    """Follows in one engine core."""

    def __init__(self, core: Any, configured: Configured):
        self._core = core
        self._loop = BusyLoop(core)
        self._configured = configured
        self._folder = EndpointFolder(configured.folder) if configured.folder else None
        self._changed = False  # the folder's endpoints, since they were last read
        self._adapters: dict[str, Adapter] = {}
        self._left: list[Any] = []  # versions of adapters that have gone, which requests may still use
        self._names = Names()
        self._keep = versions_kept()
        self._pause = 0.0
        admit_with_newest(core, self._adapters)
        core.bascule_adapters = self.report

    def start(self) -> None:
        """Lets all ranks join, and starts the thread. Blocks until they have.

        Raises BasculeError if an endpoint that was named cannot be joined. One in a folder is tried again.
        """
        pending = descriptor_of_rank_0(self._core, adapter_rank.start)
        self._set_endpoints(self._configured.named if self._folder is None else self._folder.endpoints())
        if self._folder is None and (failed := [name for name, each in self._adapters.items() if not each.joined]):
            raise BasculeError(f"adapter {failed[0]}: {self._adapters[failed[0]].error}", "FAILED_PRECONDITION")
        threading.Thread(target=self._watch, args=(pending,), name="bascule-adapters", daemon=True).start()

    def report(self) -> dict[str, Any]:
        """By adapter: the versions that are held, how many requests had to change to a newer one, the last refusal.

        vLLM lets its clients call it by the name bascule_adapters.
        """
        return {name: {"versions": [each.lora_name for each in adapter.versions], "moved_requests": adapter.moved,
                       "error": adapter.error} for name, adapter in self._adapters.items()}

    def _watch(self, pending: int) -> None:
        ready = select.poll()
        ready.register(pending, select.POLLIN)
        if self._folder is not None:
            ready.register(self._folder.fileno(), select.POLLIN)
        while True:
            found = [descriptor for descriptor, _ in ready.poll(self._milliseconds())]
            self._loop.call(lambda: self._look(pending in found, found not in ([], [pending])))
            if self._pause:
                time.sleep(self._pause)

    def _milliseconds(self) -> float | None:
        """Until something is to be done, even if there is no new version."""
        adapters = list(self._adapters.values())
        if any(each.staged for each in adapters) or self._left or self._changed:
            return 1000 * _PAUSE
        times = [each.again for each in adapters if each.again is not None]
        return 1000 * max(min(times) - time.monotonic(), 0) if times else None

    def _look(self, found: bool, changed: bool) -> None:
        self._pause = 0.0
        if "weights" in self._core.model_executor.sleeping_tags:  # their memory may be gone; wake_up() brings it back
            self._pause = _PAUSE_ASLEEP
            return
        try:
            self._changed |= changed
            if self._changed:
                self._set_endpoints(self._folder.endpoints())
                self._changed = False
            now = time.monotonic()
            due = [name for name, each in self._adapters.items() if each.again is not None and each.again <= now]
            again = [name for name in due if self._adapters[name].joined]
            self._join([name for name in due if name not in again])
            if found or again:
                self._stage(again)
            for name, adapter in list(self._adapters.items()):
                if adapter.staged:
                    self._serve_when_free(name, adapter)
            if self._left and not held(self._core.scheduler, self._left):
                self._core.collective_rpc(adapter_rank.drop, args=(self._left,))
                self._left = []
        except Exception:  # requests go on with what there is
            _logger.exception("following adapters failed; next attempt in %.1f s", _PAUSE_AFTER_FAILURE)
            self._pause = _PAUSE_AFTER_FAILURE

    def _set_endpoints(self, endpoints: dict[str, str]) -> None:
        if gone := [name for name in self._adapters if name not in endpoints]:
            self._core.collective_rpc(adapter_rank.leave, args=(gone,))
        for name in gone:
            self._left += self._adapters.pop(name).versions
            _logger.info("adapter %s has gone", name)
        new = [name for name in endpoints if name not in self._adapters]
        self._adapters.update({name: Adapter(endpoints[name]) for name in new})
        self._join(new)

    def _join(self, names: list[str]) -> None:
        """Joins each of these endpoints in all ranks. One that fails in a rank is left in all, and tried again later."""
        if not names:
            return
        errors: dict[str, str] = {}
        for of_rank in self._core.collective_rpc(adapter_rank.join, args=({name: self._adapters[name].endpoint
                                                                           for name in names},)):
            errors = {**of_rank, **errors}
        if errors:
            self._core.collective_rpc(adapter_rank.leave, args=(list(errors),))
        for name in names:
            adapter = self._adapters[name]
            if name not in errors:
                adapter.joined, adapter.wait, adapter.again, adapter.error = True, 0.0, None, ""
            elif adapter.failed(errors[name]):
                _logger.error("adapter %s cannot be followed, and is tried again every few seconds: %s", name, errors[name])

    def _stage(self, again: list[str]) -> None:
        for name in again:
            self._adapters[name].again = None
        number = self._names.next_id()
        staged = self._core.collective_rpc(adapter_rank.stage, args=(number, again))
        name, version = staged[0].name, staged[0].version
        if not name or not (version or any(each.error for each in staged)):
            self._pause = _PAUSE  # taken before, or there is no sender
            return
        adapter = self._adapters[name]
        lacking = frozenset.intersection(*(each.unbound for each in staged))
        error = next((each.error for each in staged if each.error), "") or _unbound(lacking, staged[0].modules)
        if error:
            self._refuse(name, adapter, version, error)
            return
        # If only one version is kept, new requests begin with the old one until this is served: no wait would end sooner.
        patience = adapter.patience if self._keep > 1 else 0.0
        adapter.staged = (version, self._names.named(name, number, adapter.endpoint, version), time.monotonic() + patience)

    def _serve_when_free(self, name: str, adapter: Adapter) -> None:
        """Serves a staged version, once no request uses those that give way, or at last makes such requests change."""
        version, request, until = adapter.staged
        dropped = adapter.versions[:max(len(adapter.versions) + 1 - self._keep, 0)]
        late = held(self._core.scheduler, dropped)
        if late and time.monotonic() < until:
            return
        adapter.staged = None
        errors = self._core.collective_rpc(adapter_rank.activate, args=(name, request))
        if error := next(filter(None, errors), ""):
            self._refuse(name, adapter, version, error, request)
            return
        if late:  # what they have in the caches is of other weights
            try:
                self._core.reset_prefix_cache(reset_running_requests=True)
            except RuntimeError as error:  # such as blocks that another engine is still reading
                self._refuse(name, adapter, version, str(error), request)
                return
            for each in late:
                change(each, request)
            if self._keep > 1:
                _logger.warning("adapter %s: %d requests of %s did not end within %.1f s, and go on with it",
                                request.lora_name, len(late), " and ".join(old.lora_name for old in dropped), adapter.patience)
        adapter.versions = [*adapter.versions[len(dropped):], request]
        adapter.moved += len(late)
        adapter.wait, adapter.error = 0.0, ""
        self._core.collective_rpc(adapter_rank.finish,
                                  args=(name, "", request, dropped, [each.request_id for each in late]))
        _logger.info("adapter %s", request.lora_name)

    def _refuse(self, name: str, adapter: Adapter, version: int, error: str, failed: Any = None) -> None:
        self._core.collective_rpc(adapter_rank.finish, args=(name, error, failed))
        if not version and adapter.error:  # nothing came since the last refusal, which take() tells again
            error = adapter.error
        serves = adapter.versions[-1].lora_name if adapter.versions else "no version"
        if adapter.failed(error):  # the sender brings it again
            _logger.error("version %d of adapter %s is refused, and %s is served: %s", version, name, serves, error)


def _unbound(lacking: frozenset[str], modules: int) -> str:
    """The error if the engine lacks some of the adapter's modules; empty if it lacks none."""
    if not lacking:
        return ""
    some = ", ".join(sorted(lacking)[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    binds = "no module" if len(lacking) == modules else f"not all modules ({modules - len(lacking)} of {modules})"
    return (f"the trainer's adapter binds {binds} of this engine: the engine has no module {some}, or gives it no adapters "
            "(--lora-target-modules)")
