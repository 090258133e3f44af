"""`python -m bascule status`: what an endpoint says of itself, and whether its slots hold what it says."""

from __future__ import annotations

from collections.abc import Callable

from . import _core


def observe(target: str) -> _core.Observation:
    """Asks the sender at an endpoint's URL or folder, and makes the digest of every whole slot. It changes nothing.

    Raises BasculeError: INVALID_ARGUMENT where it is no endpoint; NOT_FOUND, UNAVAILABLE, PERMISSION_DENIED where
    nothing can be said, with the reason.
    """
    return _core.observe(target)


def run(target: str, write: Callable[[str], None] = print) -> int:
    """Writes what observe() sees; the number of things that are wrong."""
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
