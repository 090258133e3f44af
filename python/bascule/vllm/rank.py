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
from .together import choose, follow, on_all_ranks, taken_together

_LOOK_EVERY = 0.5  # seconds between two looks whether the sender refused the targets
_NO_VERSION = 2**63 - 1  # newer than all


class Rank:
    """One rank's receiver. Call update() on all ranks of an engine at once: rank 0 decides for all.

    place: where it joins. scatter: the model's memory, into which take() copies; without it, the model's loader gets
    the slot's tensors, which it must not write. Either all ranks have a `scatter`, or none has. They all change to
    loading, and log why, if a sender has other tensors or the model's tensors were moved.
    """

    def __init__(self, place: Place, scatter: Scatter | None = None):
        self.place = place
        self.version = 0  # the version that the model holds; 0: none yet, or a mixture
        self.loads = 0  # how many so far; another sender may use a version's number again
        self.mixture = False  # an update failed: the model's tensors may be of several versions
        self.scatter = scatter
        self._scatters_on_all = scatter is not None  # all ranks change it in the same update()
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
            try:
                taken = (self._scattered(model, version, timeout) if self._scatters_on_all else
                         self._taken(version, timeout))
            except BasculeError:
                self._note_half_copied()
                raise
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
                                 **({"targets": self.scatter.targets, "apply": "commit", "accept": self.scatter.check}
                                    if self.scatter else {}))
        self._pending.register(self.receiver.fileno(), select.EPOLLIN)

    def _taken(self, version: int | None, timeout: float) -> int | None:
        return taken_together(self.place, self.receiver, self.version, version, timeout)

    # ---- scatter ----

    def _scattered(self, model: Any, version: int | None, timeout: float) -> int | None:
        """Like _taken(). All ranks change to loading in the same call if one of them cannot scatter."""
        deadline = time.monotonic() + timeout
        why, choice = self._unusable(model), None
        while on_all_ranks(self.place, why is None):
            left = max(deadline - time.monotonic(), 0)
            if choice is not None and choice.last:
                return follow(self.place, self.receiver, self.version, choice, left)
            choice = choose(self.place, self.receiver, self.version, version, min(left, _LOOK_EVERY),
                            last=left <= _LOOK_EVERY)
            if choice.version:
                return follow(self.place, self.receiver, self.version, choice, left)
            why = self._refusal()
        self._load_from_now_on(why or "another rank cannot scatter them")
        self._scatters_on_all = False
        return self._taken(version, max(deadline - time.monotonic(), 0))

    def _unusable(self, model: Any) -> str | None:
        """Why this rank cannot scatter into `model`, or None if it can."""
        if self.scatter is None:
            return "the sender refused the targets"
        if not self.scatter.is_whole and not self.scatter.fits(model):  # the loader needs whole tensors
            return "the model's parameters were moved"
        return None

    def _note_half_copied(self) -> None:
        if self.scatter and not self._closed.is_set() and self.receiver.status().state == "poisoned":
            self.version, self.mixture = 0, True

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
        if self.scatter is None:
            return
        self._note_half_copied()
        logger.warning("the model's loader now loads versions; they are not scattered: %s", why)
        self._pending.unregister(self.receiver.fileno())
        self.receiver.close()
        self.scatter = None
        self._join()
