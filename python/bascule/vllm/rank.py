"""One rank of an engine: takes a version, loads it into the model, and acknowledges it."""

from __future__ import annotations

import select
import threading
import time
from typing import Any

from ..errors import BasculeError, BasculeTimeoutError
from ..receiver import Receiver
from .load import load
from .place import Place
from .scatter import Scatter, logger

_LOOK_EVERY = 0.5  # seconds between two looks whether the sender refused the targets
_NO_VERSION = 2**63 - 1  # newer than all


class Rank:
    """One rank's receiver. Call update() on all ranks of an engine at once: rank 0 decides for all.

    place: where it joins. scatter: the model's memory, into which take() copies; without it, the model's loader gets
    the slot's tensors, which it must not write. A rank that scatters changes to loading, and logs why, if a sender has
    other tensors or the model's tensors were moved.
    """

    def __init__(self, place: Place, scatter: Scatter | None = None):
        self.place = place
        self.version = 0  # the version that the model holds; 0: none yet, or a mixture
        self.loads = 0  # how many so far; another sender may use a version's number again
        self.mixture = False  # an update failed: the model's tensors may be of several versions
        self.scatter = scatter
        self._moved = False
        self._turn = threading.Lock()  # only one thread at a time may use the receiver
        self._closed = threading.Event()
        self._pending = select.epoll()  # has the present receiver's eventfd; the engine core's process polls it
        self._join()
        if self.scatter:
            threading.Thread(target=self._watch_refusals, name="bascule-targets", daemon=True).start()

    def fileno(self) -> int:
        """A descriptor that is readable when update() may have work."""
        return self._pending.fileno()

    def update(self, model: Any, model_config: Any, version: int | None = None, timeout: float = 30) -> int | None:
        """Takes a version, loads it into the model, and reports success or the error to the sender.

        version: take this one or a newer one; None: the newest. Returns the version that the model holds now; None if
        none came within `timeout` seconds, or it was loaded before.

        Raises what loading raised. The sender then brings the newest version again.
        """
        with self._turn:
            if self.scatter:
                taken = self._scattered(version, timeout)
            else:
                taken = self._taken(version, timeout)
            if taken is None:
                return None
            self.version, self.mixture = 0, True
            try:
                if not self.scatter:
                    load(model, model_config, self.receiver.weights())
                elif not self.scatter.fits(model):
                    if not self._moved:
                        logger.warning("the model's parameters were moved: the model's loader now loads versions, "
                                       "from the memory where the parameters were")
                    self._moved = True
                    load(model, model_config, {each.name: each.tensor for each in self.scatter.targets})
            except BaseException as error:
                self.receiver.finish(error)
                raise
            self.receiver.finish()
            self.version, self.mixture = taken, False
            self.loads += 1
            return taken

    def close(self) -> None:
        """Leaves the endpoint. Blocks until an update() in progress has ended, which it interrupts."""
        self._closed.set()
        self.receiver.close()  # an update() that waits ends
        with self._turn:
            self.receiver.close()
            self._pending.close()

    # ----

    def _join(self) -> None:
        self.receiver = Receiver(self.place.endpoint, worker=self.place.worker, group=self.place.group,
                                 rank=self.place.rank, ranks=self.place.ranks, device=self.place.device,
                                 stream=self.place.stream,
                                 **({"targets": self.scatter.targets, "apply": "commit"} if self.scatter else {}))
        self._pending.register(self.receiver.fileno(), select.EPOLLIN)

    def _taken(self, version: int | None, timeout: float) -> int | None:
        return taken_together(self.place, self.receiver, self.version, version, timeout)

    # ---- scatter, for an engine of one rank ----

    def _scattered(self, version: int | None, timeout: float) -> int | None:
        deadline = time.monotonic() + timeout
        while True:
            left = max(deadline - time.monotonic(), 0)
            failed = taken = None
            try:
                taken = self.receiver.take(version, min(left, _LOOK_EVERY))
            except BasculeError as error:
                failed = error
                if self.receiver.status().state == "poisoned":  # it had begun to copy
                    self.version, self.mixture = 0, True
            if taken is not None:
                return taken
            if (why := self._refusal()) is not None:
                self._load_from_now_on(why)
                return self._taken(version, left)
            if failed is not None and not (isinstance(failed, BasculeTimeoutError) and left > _LOOK_EVERY):
                raise failed
            if left <= _LOOK_EVERY:
                return None

    def _refusal(self) -> str | None:
        """Why the sender's tensors cannot be copied into the model's, or None if no such reason is known."""
        try:
            self.receiver.wait_ready(0, _NO_VERSION)
        except BasculeError as error:
            return None if isinstance(error, BasculeTimeoutError) or self._closed.is_set() else str(error)
        return None

    def _watch_refusals(self) -> None:
        """Runs in a thread: a refused worker is no member, so it gets no version that would lead to an update()."""
        while not self._closed.wait(_LOOK_EVERY):
            if not self._turn.acquire(blocking=False):
                continue  # update() checks this itself
            try:
                if self._closed.is_set() or not self.scatter:
                    return
                if (why := self._refusal()) is not None:
                    self._load_from_now_on(why)
            finally:
                self._turn.release()

    def _load_from_now_on(self, why: str) -> None:
        logger.warning("the model's loader now loads versions; they are not scattered: %s", why)
        self._pending.unregister(self.receiver.fileno())
        self.receiver.close()
        self.scatter = None
        self._join()


def taken_together(place: Place, receiver: Receiver, held: int, version: int | None, timeout: float) -> int | None:
    """Takes the version that rank 0 takes. Call it on all ranks of an engine at once.

    held: the version that this rank holds. Returns None if there is no newer version. Raises what take() raised, on all
    ranks if rank 0 failed; BasculeError (UNAVAILABLE) if this rank does not have rank 0's version.
    """
    if place.ranks == 1:
        return receiver.take(version, timeout)
    taken, error = None, None
    if place.rank == 0:
        try:
            taken = receiver.take(version, timeout)
        except BasculeError as raised:  # the other ranks wait for an answer
            error = raised
    taken, first_held, error = from_first_rank((taken, held, error))
    if error is not None:
        raise error
    if taken is None and first_held != held:
        taken = first_held  # rank 0 loaded it before; this rank could not
    if taken and place.rank != 0 and receiver.take(taken, timeout) is None:
        status = receiver.status()
        if status.state != "serving" or status.version != taken:
            raise status.error or BasculeError(f"version {taken}, which rank 0 holds, is not here", "UNAVAILABLE")
    return taken or None


def from_first_rank(what: Any) -> Any:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_tp_group().broadcast_object(get_pp_group().broadcast_object(what, 0), 0)
