"""Calls of a model, which may run beside each other, and flips, which run alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Calls:
    """A flip waits for the calls that have begun; calls that begin meanwhile wait for the flip. Threads: any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0  # threads with a call under way
        self._flipping = False
        self._of_thread = threading.local()  # depth: a call may call

    def begin(self) -> None:
        depth = getattr(self._of_thread, "depth", 0)
        if depth == 0:
            with self._changed:
                self._changed.wait_for(lambda: not self._flipping)
                self._inside += 1
        self._of_thread.depth = depth + 1

    def end(self) -> None:
        """Of a begin() in this thread; without one it does nothing."""
        depth = getattr(self._of_thread, "depth", 0)
        if depth == 0:
            return
        self._of_thread.depth = depth - 1
        if depth == 1:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Not within a call of the same thread, which it would wait for."""
        if getattr(self._of_thread, "depth", 0):
            raise RuntimeError("a flip within a call of the model")
        with self._changed:
            self._changed.wait_for(lambda: not self._flipping)
            self._flipping = True
            self._changed.wait_for(lambda: self._inside == 0)
        try:
            yield
        finally:
            with self._changed:
                self._flipping = False
                self._changed.notify_all()
