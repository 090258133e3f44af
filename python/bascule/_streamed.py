"""What trainers that stream their tensors into a slot share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import _core
from .errors import BasculeError
from .sender import Sender


def stream_and_update(sender: Sender, count: int, tensors: Iterable[tuple[str, Any]], update: Callable[[int], None]) -> None:
    """Streams `count` tensors, and calls update(version) in another thread once all are in the slot.

    update: tells the engines to load this version or a newer one, and blocks until they have. They do not wait for gathers,
    and are not told anything if one fails.

    Raises what the tensors or `update` raised; BasculeError names the workers that do not serve the version, and why.
    """
    updates: list[Future[None]] = []
    pool = ThreadPoolExecutor(1, "bascule-update")

    def then_update() -> Iterator[tuple[str, Any]]:
        given = 0
        for given, named in enumerate(tensors, 1):
            yield named
        if given == count:  # else stream() names what is missing
            updates.append(pool.submit(update, sender.version + 1))

    try:
        check_served(sender.stream(then_update()))
        for each in updates:
            each.result()
    finally:
        pool.shutdown(wait=False)  # if no version came, an engine reports it only after its timeout


def check_served(report: Any) -> None:
    """Raises BasculeError (UNAVAILABLE) unless all workers serve the version of this report."""
    if not report.complete:
        raise BasculeError(f"version {report.version} is not served by all workers: {report.why_incomplete}", "UNAVAILABLE")


def slots_device(endpoint: str) -> str:
    """Where the slots of a sender in this process are: on the GPU that is current here, or in host memory."""
    if not _core.keeps_slots_on_gpu(endpoint):
        return "cpu"
    import torch

    return f"cuda:{torch.cuda.current_device()}"
