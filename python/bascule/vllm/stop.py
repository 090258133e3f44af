"""Stops an engine core while its model's tensors are a mixture of versions, and tells why.

Requests wait meanwhile. Those that have waited for BASCULE_REQUEST_TIMEOUT seconds (60 by default) end with an error
that has the reason, and health.py makes GET /health answer 503. All of this runs in the busy loop's thread.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from ..errors import BasculeError

REASON = "bascule: "  # begins the stop_reason of requests that ended for the reason that follows
_TIMEOUT = "BASCULE_REQUEST_TIMEOUT"


class Stop:
    """One engine core's stop. While it lasts, the user's own pauses and resumes are recorded; end() applies them."""

    def __init__(self, core: Any):
        self.why: str | None = None  # None: the scheduler runs, as far as we are concerned
        self._core = core
        self._timeout = request_timeout()
        self._since = 0.0  # as time.time(), like the requests' arrival
        self._set_pause_state = core.scheduler.set_pause_state
        self._wanted = core.scheduler.pause_state  # by the user
        core.scheduler.set_pause_state = self._want_pause_state
        core.bascule_stopped = lambda: self.why  # vLLM lets its clients call methods of the core by name

    def begin(self, why: str) -> None:
        """Stops generation, or gives a stop that lasts another reason. Ends the requests that have waited too long."""
        from vllm.v1.core.sched.interface import PauseState

        if self.why is None:
            self._since, self._wanted = time.time(), self._core.scheduler.pause_state
            self._set_pause_state(PauseState.PAUSED_ALL)
        self.why = why
        self._end_late_requests()

    def end(self) -> None:
        """Lets generation go on, unless the user paused it. Does nothing without a stop."""
        if self.why is not None:
            self.why = None
            self._set_pause_state(self._wanted)

    def _want_pause_state(self, state: Any) -> None:
        self._wanted = state
        if self.why is None:
            self._set_pause_state(state)

    def _end_late_requests(self) -> None:
        latest = time.time() - self._timeout
        late = [each for each in self._core.scheduler.requests.values()
                if not each.is_finished() and max(each.arrival_time, self._since) <= latest]
        end_with_reason(self._core, late, f"this engine waits for a version that it can load: {self.why}")


def end_with_reason(core: Any, requests: list[Any], why: str) -> None:
    """Ends requests that the scheduler has with an error, whose stop_reason says why."""
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
    from vllm.v1.request import RequestStatus

    core.scheduler.finish_requests([each.request_id for each in requests], RequestStatus.FINISHED_ERROR)
    for each in requests:
        output = EngineCoreOutput(each.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=REASON + why)
        core.output_queue.put_nowait((each.client_index, EngineCoreOutputs(
            outputs=[output], finished_requests={each.request_id})))


def request_timeout() -> float:
    """Seconds that a request waits at most for a stopped engine. Raises BasculeError: INVALID_ARGUMENT."""
    text = os.environ.get(_TIMEOUT, "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise BasculeError(f"{_TIMEOUT}: expected a number of seconds, 0 or more, found {text!r}", "INVALID_ARGUMENT")
    return seconds
