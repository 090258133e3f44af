"""How far a send has come, for progress bars; and its report as numbers, for TensorBoard and wandb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .errors import BasculeError

_LEAVES = {"failed", "poisoned", "bye", "refused", "abort"}  # messages after which a worker takes no part


class Progress(NamedTuple):
    """A change in a send: `done` of the `of` workers that take part have finished the stage.

    stage: "pack" (the trainer writes the version, or sends it), "prepare" (each worker verifies it), or "commit" (each worker
    begins to serve it).
    """

    stage: str
    done: int
    of: int


class Stages:
    """Calls `changed` with each Progress that follows from a sender's control messages."""

    def __init__(self, changed: Callable[[Progress], Any]):
        if not callable(changed):
            raise BasculeError(f"progress: expected a function of a Progress, found {type(changed).__name__}", "INVALID_ARGUMENT")
        self._changed = changed
        self._stage = ""
        self._workers: set[str] = set()
        self._done: set[str] = set()

    def __call__(self, line: str) -> None:
        """line: such as "to engine-0: prepare"."""
        who, _, message = line.rpartition(": ")
        worker = who.partition(" ")[2]
        if message == "prepare":
            if self._stage != "pack":
                self._begin("pack")
                self._workers = set()
            self._workers.add(worker)
        elif worker not in self._workers:
            return
        elif message == "sealed" and self._stage == "pack":  # to all, one after the other
            self._done = set(self._workers)
            self._tell()
            self._begin("prepare")
        elif message == "decided" and self._stage == "prepare":
            self._begin("commit")
        elif (self._stage, message) in (("prepare", "prepared"), ("commit", "ack")):
            self._done.add(worker)
        elif message == "ack" and self._stage == "prepare":  # it takes part alone, and learned the decision with "sealed"
            self._begin("commit")
            self._tell()
            self._done.add(worker)
        elif message in _LEAVES:
            self._workers.discard(worker)
            self._done.discard(worker)
        else:
            return
        self._tell()

    def _begin(self, stage: str) -> None:
        self._stage, self._done = stage, set()

    def _tell(self) -> None:
        self._changed(Progress(self._stage, len(self._done), len(self._workers)))
        if self._stage == "commit" and self._done == self._workers:  # what a worker does later is no part of the send
            self._stage, self._workers = "", set()


def scalars(report: Any, prefix: str = "sync/") -> dict[str, float]:
    """Returns the numbers of a SendReport by name, for wandb.log(), or for add_scalar() one by one.

    Leaves out workers that do not serve the version.
    """
    stages = ("wait", "pack", "deliver", "prepare", "commit", "persist", "total")
    numbers = {"version": report.version, "bytes": report.bytes, "complete": report.complete,
               "workers": sum(each.state == "serving" for each in report.workers),
               **{f"seconds/{stage}": getattr(report.seconds, stage) for stage in stages}}
    for worker in report.workers:
        if worker.state == "serving":
            numbers[f"worker/{worker.worker}/seconds"] = worker.seconds
            numbers[f"worker/{worker.worker}/stall_seconds"] = worker.stall_seconds
    return {prefix + name: float(number) for name, number in numbers.items()}
