"""Lets an engine pick up new weights automatically, even while it is idle.

This runs in vLLM's engine core: the process whose busy loop takes requests from `input_queue`, to which any thread may
add. At the start, rank 0's worker passes its receiver's eventfd to the engine core. A thread polls the eventfd and adds
a request; the busy loop then calls all workers at once (collective_rpc) between two scheduler steps, and resets the
caches before the next step. The busy loop is wrapped when vLLM loads the plugin; besides, only the
server's health check is (health.py).

An engine follows if BASCULE_ENDPOINT is set, BASCULE_FOLLOW is not 0, and the backend is "bascule" or the worker
extension is WorkerExtension. An engine within the user's own process (VLLM_ENABLE_V1_MULTIPROCESSING=0) has no busy
loop; there the user calls for updates.
"""

from __future__ import annotations

import functools
import logging
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import BasculeError
from . import health

_EXTENSION = "bascule.vllm.WorkerExtension"
_FLIP = object()  # marks our requests in vLLM's queue
_SHORTEST_STOP, _LONGEST_PAUSE = 0.5, 5.0  # seconds between two attempts after a load failed
_STOP_LIMIT = 60.0  # seconds that a request waits for weights that load, unless BASCULE_STOP_LIMIT has another number
_SHORTEST_PAUSE = 0.02  # seconds, after a look that found no version

_logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


def install() -> None:
    """Wraps the busy loop, in a process that may become an engine core. A second call does nothing."""
    if not os.environ.get("BASCULE_ENDPOINT") or os.environ.get("BASCULE_FOLLOW") == "0":
        return
    from vllm.v1.engine import core

    health.install()
    setattr(core.EngineCoreProc, health.WHY, lambda core: "")  # an engine core without a Follower
    for kind in (core.EngineCoreProc, core.DPEngineCoreProc):
        if not hasattr(kind.run_busy_loop, "_before_bascule"):
            kind.run_busy_loop = _followed(kind.run_busy_loop)


def _followed(run_busy_loop: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(run_busy_loop)
    def run(core: Any) -> None:
        transfer = getattr(core.vllm_config, "weight_transfer_config", None)
        extension = core.vllm_config.parallel_config.worker_extension_cls
        if getattr(transfer, "backend", None) == "bascule" or extension == _EXTENSION:
            Follower(core).start()
        run_busy_loop(core)

    run._before_bascule = run_busy_loop
    return run


class Follower:
    """Follows in one engine core. All methods but _watch() run in the busy loop's thread."""

    def __init__(self, core: Any):
        self._core = core
        self._handle = core._handle_client_request
        self._handled = threading.Event()
        self._pause = 0.0  # seconds until the next attempt
        self._stopped_scheduler = False
        self._why_stopped, self._stopped_at = "", 0.0
        self._stop_limit = _stop_limit()
        self._set_pause_state = core.scheduler.set_pause_state
        self._pause_state = core.scheduler.pause_state  # as the user wants it

    def start(self) -> None:
        """Lets all ranks join, and starts the thread. Blocks until they have; raises what joining raised."""
        folder = tempfile.mkdtemp(prefix="bascule-")
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(f"{folder}/follow")
                listening.listen()
                self._core.collective_rpc(_join, args=(f"{folder}/follow",))
                connection, _ = listening.accept()
            with connection:
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        finally:
            shutil.rmtree(folder)
        self._core._handle_client_request = self._handle_request
        setattr(self._core, health.WHY, lambda: self._why_stopped)
        self._core.scheduler.set_pause_state = self._want_pause_state
        threading.Thread(target=self._watch, args=(descriptors[0],), name="bascule-follow", daemon=True).start()

    def _watch(self, pending: int) -> None:
        ready = select.poll()
        ready.register(pending, select.POLLIN)
        while True:
            ready.poll(0 if self._stopped_scheduler else None)  # a failed rank may still need rank 0's version
            self._handled.clear()
            self._core.input_queue.put_nowait((_FLIP, None))
            self._handled.wait()
            if self._pause:
                time.sleep(self._pause)

    def _handle_request(self, kind: Any, request: Any) -> None:
        if kind is not _FLIP:
            return self._handle(kind, request)
        try:
            self._flip()
        finally:
            self._handled.set()

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
            self._stop_scheduler(errors[0] if errors else "a rank holds another version than the others")
            if time.monotonic() - self._stopped_at > self._stop_limit:
                self._end_requests()
            return
        loaded = any(outcome.loaded for outcome in outcomes)
        self._pause = 0.0 if loaded else _SHORTEST_PAUSE
        if not loaded:  # taken before, or there is no sender
            if errors:
                _logger.debug("no version: %s", errors[0])
            return
        # What the old weights computed is computed again, also for running requests.
        self._core.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        self._core.reset_encoder_cache()
        if hasattr(self._core, "set_weight_version"):
            self._core.set_weight_version(str(outcomes[0].version))
        self._resume_scheduler()
        _logger.info("weights of version %d", outcomes[0].version)

    # While the scheduler is stopped, the user's own pauses and resumes are recorded, and applied when it resumes.

    def _stop_scheduler(self, why: str) -> None:
        """Stops generation while the model's tensors are a mixture of versions."""
        self._why_stopped = f"weights could not be loaded: {why}"
        if not self._stopped_scheduler:
            from vllm.v1.core.sched.interface import PauseState

            self._stopped_scheduler, self._pause_state = True, self._core.scheduler.pause_state
            self._stopped_at = time.monotonic()
            self._set_pause_state(PauseState.PAUSED_ALL)

    def _resume_scheduler(self) -> None:
        if self._stopped_scheduler:
            self._stopped_scheduler, self._why_stopped = False, ""
            self._set_pause_state(self._pause_state)

    def _end_requests(self) -> None:
        """Ends all requests: their finish reason is "abort", their stop reason says why."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
        from vllm.v1.request import RequestStatus

        by_client: dict[int, list[str]] = {}
        for request in self._core.scheduler.requests.values():
            by_client.setdefault(request.client_index, []).append(request.request_id)
        for client, ended in by_client.items():
            self._core.scheduler.finish_requests(ended, RequestStatus.FINISHED_ABORTED)
            outputs = [EngineCoreOutput(each, [], finish_reason=FinishReason.ABORT, stop_reason=self._why_stopped)
                       for each in ended]
            self._core.output_queue.put_nowait((client, EngineCoreOutputs(finished_requests=set(ended), outputs=outputs)))
            _logger.error("%d requests end: %s", len(ended), self._why_stopped)

    def _want_pause_state(self, state: Any) -> None:
        self._pause_state = state
        if not self._stopped_scheduler:
            self._set_pause_state(state)


def _stop_limit() -> float:
    text = os.environ.get("BASCULE_STOP_LIMIT", "")
    try:
        if not text or float(text) >= 0:
            return float(text or _STOP_LIMIT)
    except ValueError:
        pass
    raise BasculeError(f"BASCULE_STOP_LIMIT: expected seconds, 0 or more, found {text!r}", "INVALID_ARGUMENT")


def _join(worker: Any, address: str) -> None:
    """Runs in each worker: joins the endpoint. Rank 0's worker sends its eventfd to `address`."""
    if _by_backend(worker):
        worker.init_weight_transfer_engine({})
        rank = worker.weight_transfer_engine.rank
    else:
        worker.bascule_join()
        rank = worker.bascule_rank
    if rank.place.rank == 0:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            socket.send_fds(connection, [b"0"], [rank.fileno()])


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
