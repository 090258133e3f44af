"""`python -m bascule status`: shows an endpoint's sender, workers and slots, and verifies the slots."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath

from . import _core
from ._checks import text


def observe(target: str | PathLike[str]) -> _core.Observation:
    """Asks the sender at an endpoint's URL or folder for its state, and checks the digest of every whole slot.

    Takes no lease and changes nothing. Blocks; each time it asks, it waits for the answer for at most twice the
    endpoint's suspect_after.

    Raises BasculeError: NOT_FOUND if `target` is neither an endpoint nor a folder, INVALID_ARGUMENT if the endpoint is
    malformed; UNAVAILABLE, PERMISSION_DENIED or UNAUTHENTICATED, with the reason, if the state cannot be read.
    """
    return _core.observe(text("target", fspath(target) if isinstance(target, PathLike) else target))


def run(target: str, write: Callable[[str], None] = print) -> int:
    """Passes what observe() finds to `write`, line by line; returns the number of problems."""
    seen = observe(target)
    write(f"{seen.place}: {seen.scheme}, {'a sender' if seen.sender else 'no sender'}, epoch {seen.epoch}, "
          f"version {seen.version}")
    for worker in seen.workers:
        path = f" by {worker.path}" if worker.path else ""
        write(f"  worker {worker.worker} (pid {worker.pid}): {worker.state}, version {worker.serving}{path}")
    for slot in seen.slots:
        holders = f", read by {', '.join(slot.holders)}" if slot.holders else ""
        write(f"  slot {slot.index}: {slot.state}, version {slot.version}, {slot.check}{holders}")
    for sentence in seen.wrong:
        write(f"WRONG: {sentence}")
    return len(seen.wrong)
