"""Lets calls of a model run at the same time, and flips run alone."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Calls:
    """A flip waits for the calls in progress; new calls wait for the flip. Any thread may call the methods."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0  # threads with a call in progress
        self._flipping = False
        self._of_thread = threading.local()  # depth: calls may be nested

    def begin(self) -> None:
        """Begins a call in this thread. Blocks while a flip runs or waits, unless it is nested in another call."""
        depth = self._depth()
        if depth == 0:
            with self._changed:
                self._changed.wait_for(lambda: not self._flipping)
                self._inside += 1
        self._of_thread.depth = depth + 1

    def end(self) -> None:
        """Ends this thread's last begin()."""
        self._of_thread.depth = self._depth() - 1
        if self._depth() == 0:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """begin() and end() around a `with` block."""
        self.begin()
        try:
            yield
        finally:  # also after a KeyboardInterrupt
            self.end()

    def within(self) -> bool:
        """Whether this thread is within a call."""
        return self._depth() > 0

    @contextmanager
    def alone(self, patience: float | None = None) -> Iterator[bool]:
        """Waits up to `patience` seconds (None: for ever) until no call or other flip runs, then keeps new ones out.

        Yields whether that succeeded. Raises RuntimeError if this thread is within a call, since it would wait for
        itself.
        """
        if self.within():
            raise RuntimeError("a flip within a call of the model")
        with self._changed:
            mine = self._changed.wait_for(lambda: not self._flipping, patience)
            if mine:
                self._flipping = True
        try:
            with self._changed:
                alone = mine and self._changed.wait_for(lambda: self._inside == 0, patience)
            yield alone
        finally:
            if mine:
                with self._changed:
                    self._flipping = False
                    self._changed.notify_all()

    def forked(self) -> None:
        """Call it in a forked child, where only this thread is left: frees what the other threads held."""
        self._changed, self._flipping = threading.Condition(), False

    def _depth(self) -> int:
        return getattr(self._of_thread, "depth", 0)


class Guarded:
    """Wraps a method so that each call is counted in `calls`. A copy or a pickle of it is the plain method."""

    def __init__(self, method: Callable[..., Any], calls: Calls, own: Any = None):
        """own: the attribute that other code had set instead of the method, if any."""
        functools.update_wrapper(self, method)  # callers look at its signature
        self._method, self._calls, self.own = method, calls, own

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with self._calls.held():
            return self._method(*arguments, **named)

    def __reduce__(self) -> Any:
        return _plain, (self._method,)


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    return method
