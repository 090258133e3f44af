"""Lets an engine's function decide whether its receiver takes a sender.

The function runs in its own Python thread, for which the receiver's thread waits, until close(): a function that never
returns must not hold up close(), nor the end of the process.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from . import _core
from .errors import BasculeError
from .tensors import TensorSpec, offered_spec

Accept = Callable[[list[TensorSpec], str], None]
_asked: weakref.WeakValueDictionary[int, Accepting] = weakref.WeakValueDictionary()  # by number
_numbers = itertools.count(1)


class Accepting:
    """An engine's `accept`, which the core knows by its `number` alone: the function may hold its receiver."""

    def __init__(self, accept: Accept):
        if not callable(accept):
            raise BasculeError(f"accept: expected a function of tensors and a description, found {accept!r:.200}",
                               "INVALID_ARGUMENT")
        self._accept = accept
        self._turn = threading.RLock()  # a signal handler may also close
        self._calls: list[_Call] = []  # the one in progress, if any
        self._closed = False
        self.number = next(_numbers)
        _asked[self.number] = self

    def begin(self, tensors: list[TensorSpec], description: str) -> _Call:
        """Starts a call of the function. Only one is in progress at a time."""
        with self._turn:
            if self._closed:
                raise BasculeError("this receiver is closed", "CANCELLED")
            call = _Call(self._accept, tensors, description)
            self._calls[:] = [call]
        call.thread.start()
        return call

    def close(self, patience: float) -> bool:
        """Gives a call in progress `patience` seconds, after which nothing waits for it. Returns whether it has ended."""
        with self._turn:
            self._closed = True
        return all([call.give_up(patience) for call in self._calls])

    def __del__(self) -> None:  # its receiver, which goes next, waits for the call
        for call in getattr(self, "_calls", ()):
            call.give_up(0)


class _Call:
    def __init__(self, accept: Accept, tensors: list[TensorSpec], description: str):
        self._arguments = accept, tensors, description
        self._answer: Any = None
        self._error: BaseException | None = None
        self._returned, self._settled = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="bascule-accept", daemon=True)

    def result(self) -> Any:
        """Waits for the function. Returns or raises what it did; raises BasculeError (CANCELLED) after give_up()."""
        self._settled.wait()
        if not self._returned.is_set():
            raise BasculeError("this receiver is closed", "CANCELLED")
        if self._error is not None:
            raise self._error
        return self._answer

    def give_up(self, patience: float) -> bool:
        """Ends the wait of result() after `patience` seconds. Returns whether the function has returned, or is calling."""
        within = self.thread is threading.current_thread()
        returned = within or self._returned.wait(patience)
        self._settled.set()
        return returned

    def _run(self) -> None:
        accept, tensors, description = self._arguments
        del self._arguments
        try:
            self._answer = accept(tensors, description)
        except BaseException as error:  # also SystemExit
            self._error = error
        finally:
            self._returned.set()
            self._settled.set()


def _decide(number: int, tensors: list[tuple[str, str, list[int]]], description: str) -> None:
    """Raises what refuses the sender. On a thread of the receiver."""
    asked = _asked.get(number)
    if asked is None:
        raise BasculeError("this receiver is gone", "CANCELLED")
    call = asked.begin([offered_spec(*tensor) for tensor in tensors], description)
    del asked  # its end ends the wait
    if (answer := call.result()) is not None:  # such as False, or a coroutine
        raise BasculeError(f"accept: expected None, or an exception that says why the sender is refused, found {answer!r:.200}",
                           "INVALID_ARGUMENT")


_core.decide_by(_decide)
