"""`python -m bascule status`: shows an endpoint's sender, its ranks, workers and slots, and verifies the slots."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import Future
from os import PathLike, fspath

from . import _core
from ._checks import text


def observe(target: str | PathLike[str]) -> _core.Observation:
    """Asks the sender at an endpoint's URL or folder for its state, and checks the digest of every whole slot.

    Takes no lease and changes nothing. Blocks; each time it asks, it waits for the answer for at most twice the
    endpoint's suspect_after. Ctrl-C ends the call; what it was reading is then read to the end in the background.

    Raises BasculeError: NOT_FOUND if `target` is neither an endpoint nor a folder, INVALID_ARGUMENT if the endpoint is
    malformed; UNAVAILABLE, PERMISSION_DENIED or UNAUTHENTICATED, with the reason, if the state cannot be read.
    """
    target = text("target", fspath(target) if isinstance(target, PathLike) else target)
    if threading.current_thread() is not threading.main_thread():
        return _core.observe(target)
    observed: Future[_core.Observation] = Future()

    def run() -> None:
        try:
            observed.set_result(_core.observe(target))
        except BaseException as error:
            observed.set_exception(error)

    # In another thread, so that signals can end the wait in this one, the only one that they can interrupt.
    _thread.start_new_thread(run, ())  # Thread.start() would leave half a thread if a signal interrupted it
    return observed.result()


def run(target: str, write: Callable[[str], None] = print) -> int:
    """Passes what observe() finds to `write`, line by line; returns the number of problems."""
    seen = observe(target)
    write(f"{seen.place}: {seen.scheme}, {'a sender' if seen.sender else 'no sender'}, epoch {seen.epoch}, "
          f"version {seen.version}")
    for rank in seen.ranks:
        write(f"  rank {rank.rank} (pid {rank.pid or 'not known yet'}): {rank.state}, sends {rank.bytes} bytes")
    for worker in seen.workers:
        path = f" by {worker.path}" if worker.path else ""
        write(f"  worker {worker.worker} (pid {worker.pid}): {worker.state}, version {worker.serving}{path}")
    for slot in seen.slots:
        holders = f", read by {', '.join(slot.holders)}" if slot.holders else ""
        write(f"  slot {slot.index}: {slot.state}, version {slot.version}, {slot.check}{holders}")
    for sentence in seen.wrong:
        write(f"WRONG: {sentence}")
    return len(seen.wrong)
