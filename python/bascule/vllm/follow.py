"""Lets an engine pick up new weights automatically, even while it is idle.

This runs in vLLM's engine core: the process whose busy loop takes requests from `input_queue`, to which any thread may
add (busy_loop.py). At the start, rank 0's worker passes its receiver's eventfd to the engine core. A thread polls the
eventfd and adds a request; the busy loop then calls all workers at once (collective_rpc) between two scheduler steps,
and resets the caches before the next step. The busy loop is wrapped when vLLM loads the plugin. If a version could not
be loaded, the core stops (stop.py), and the API server says so (health.py). Nothing else in vLLM is changed.

Following is on if BASCULE_ENDPOINT is set, BASCULE_FOLLOW is not 0, and the backend is "bascule" or the worker
extension is WorkerExtension. Adapters (adapters.py) follow if BASCULE_ADAPTERS is set. An engine within the user's own
process (VLLM_ENABLE_V1_MULTIPROCESSING=0) has no busy loop; there the user's own code must request each update.
"""

from __future__ import annotations

import functools
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import adapter_server, health
from .adapters import configured
from .busy_loop import BusyLoop, descriptor_of_rank_0, send_descriptor
from .stop import Stop

_EXTENSION = "bascule.vllm.WorkerExtension"
_SHORTEST_STOP, _LONGEST_PAUSE = 0.5, 5.0  # seconds between two attempts after a load failed
_SHORTEST_PAUSE = 0.02  # seconds, after a look that found no version

_logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


def install() -> None:
    """Wraps vLLM's methods, in a process that may be an engine core or an API server. A second call does nothing."""
    if not _follows_weights() and not configured():
        return
    from vllm.v1.engine import core

    for kind in (core.EngineCoreProc, core.DPEngineCoreProc):
        if not hasattr(kind.run_busy_loop, "_before_bascule"):
            kind.run_busy_loop = _followed(kind.run_busy_loop)
    core.EngineCoreProc.bascule_stopped = lambda core: None  # until the core follows (stop.py)
    health.install()
    if adapters := configured():
        adapter_server.install(adapters)
        if not hasattr(core.EngineCore._initialize_kv_caches, "_before_bascule"):
            core.EngineCore._initialize_kv_caches = _checked(core.EngineCore._initialize_kv_caches)


def _follows_weights() -> bool:
    return bool(os.environ.get("BASCULE_ENDPOINT")) and os.environ.get("BASCULE_FOLLOW") != "0"


def _followed(run_busy_loop: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(run_busy_loop)
    def run(core: Any) -> None:
        transfer = getattr(core.vllm_config, "weight_transfer_config", None)
        extension = core.vllm_config.parallel_config.worker_extension_cls
        if getattr(transfer, "backend", None) == "bascule" or extension == _EXTENSION:
            if _follows_weights():
                Follower(core).start()
        elif _follows_weights():
            _logger.warning("BASCULE_ENDPOINT is set, but this engine does not follow it: start vLLM with "
                            "--weight-transfer-config '{\"backend\":\"bascule\"}', or unset BASCULE_ENDPOINT")
        if adapters := configured():
            from .adapter_core import AdapterFollower

            AdapterFollower(core, adapters).start()
        run_busy_loop(core)

    run._before_bascule = run_busy_loop
    return run


def _checked(initialize: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a part of the engine core's start: a failure in the busy loop would leave vLLM running without a core."""

    @functools.wraps(initialize)
    def with_check(core: Any, vllm_config: Any) -> Any:
        from .adapter_versions import check_engine

        check_engine(vllm_config)
        return initialize(core, vllm_config)

    with_check._before_bascule = initialize
    return with_check


class Follower:
    """Follows in one engine core. All methods but _watch() run in the busy loop's thread."""

    def __init__(self, core: Any):
        self._core = core
        self._loop = BusyLoop(core)
        self._pause = 0.0  # seconds until the next attempt
        self._stop = Stop(core)

    def start(self) -> None:
        """Lets all ranks join, and starts the thread. Blocks until they have; raises what joining raised."""
        pending = descriptor_of_rank_0(self._core, _join)
        threading.Thread(target=self._watch, args=(pending,), name="bascule-follow", daemon=True).start()

    def _watch(self, pending: int) -> None:
        ready = select.poll()
        ready.register(pending, select.POLLIN)
        while True:
            ready.poll(0 if self._stop.why else None)  # a failed rank may still need rank 0's version
            self._loop.call(self._flip)
            if self._pause:
                time.sleep(self._pause)

    def _flip(self) -> None:
        if "weights" in self._core.model_executor.sleeping_tags:  # their memory may be gone; wake_up() brings it back
            self._pause = _SHORTEST_STOP
            return
        outcomes = self._core.collective_rpc(_update)
        errors = [outcome.error for outcome in outcomes if outcome.error]
        held = {outcome.version for outcome in outcomes}
        if len(held) > 1 or any(outcome.mixture for outcome in outcomes):
            if errors:
                _logger.error("weights could not be loaded; generation waits for a version that loads: %s", errors[0])
            self._pause = min(max(2 * self._pause, _SHORTEST_STOP), _LONGEST_PAUSE)
            self._stop.begin(errors[0] if errors else "its ranks hold different versions")
            return
        loaded = any(outcome.loaded for outcome in outcomes)
        self._pause = 0.0 if loaded else _SHORTEST_PAUSE
        if not loaded:  # taken before, or there is no sender
            if errors:
                _logger.debug("no version: %s", errors[0])
            return
        # What the old weights computed is computed again, even for running requests.
        self._core.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        self._core.reset_encoder_cache()
        if hasattr(self._core, "set_weight_version"):
            self._core.set_weight_version(str(outcomes[0].version))
        self._stop.end()
        _logger.info("weights of version %d", outcomes[0].version)


def _join(worker: Any, address: str) -> None:
    """Runs in each worker: joins the endpoint. Rank 0's worker sends its eventfd to `address`."""
    if _by_backend(worker):
        worker.init_weight_transfer_engine({})
        rank = worker.weight_transfer_engine.rank
    else:
        worker.bascule_join()
        rank = worker.bascule_rank
    if rank.place.rank == 0:
        send_descriptor(address, rank.fileno())


@dataclass(frozen=True)
class _Outcome:
    """One rank's result: the version that it holds now (0: none), whether this call loaded it, the error if it failed,
    and whether the model's tensors may be a mixture of versions."""

    version: int
    loaded: bool
    error: str
    mixture: bool


def _update(worker: Any) -> _Outcome:
    """Runs in each worker. It returns errors: if one worker raised, vLLM would read the others' answers as answers to
    its next call."""
    by_backend = _by_backend(worker)
    rank = worker.weight_transfer_engine.rank if by_backend else worker.bascule_rank
    loads, error = rank.loads, ""
    try:
        if by_backend:
            worker.start_weight_update()
            worker.update_weights({"timeout": 0})
            worker.finish_weight_update()
        else:
            worker.bascule_take(timeout=0)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    return _Outcome(rank.version, rank.loads > loads, error, rank.mixture)


def _by_backend(worker: Any) -> bool:
    return getattr(worker, "weight_transfer_engine", None) is not None
