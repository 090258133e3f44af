"""Lets calls of a model run at the same time, and flips run alone."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import GeneratorType
from typing import Any

_LONGEST_USE = 60.0  # seconds that a flip waits until no result is in use
_logger = logging.getLogger("bascule")


class Call:
    """A call in progress, until `over`. Any thread may set that."""

    __slots__ = ("by_any", "entered", "over")

    def __init__(self, by_any: bool = False):
        self.by_any, self.entered, self.over = by_any, False, False


class Calls:
    """A flip waits for the calls in progress; new calls wait for the flip. Any thread may call the methods.

    A signal's handler may raise in the main thread at any moment, also within threading.Condition, whose lock then
    stays locked. So nothing is locked here: a call in progress is an object with a flag, and waits look at the flags
    again and again.
    """

    def __init__(self) -> None:
        self._flipping = False
        self._open: set[Call] = set()  # in progress, over just now, or waiting for the flip
        self._local = threading.local()  # mine: this thread's calls
        self._results: dict[int, tuple[str, list[weakref.ref[Any]]]] = {}  # in use, with each one's method
        self._numbers = itertools.count()

    @contextmanager
    def held(self, by_any: bool = False) -> Iterator[None]:
        """A call in progress. Blocks first while a flip runs or waits, unless it is nested in this thread's call.

        by_any: another thread may continue the `with` block, as thread pools do with generators, and end it. It may
        make calls in the block: while a flip waits for the end of such a block, calls begin.
        """
        call = Call(by_any)
        try:
            self.begin(call)
            yield
        finally:
            call.over = True
            self.ended(call)

    def begin(self, call: Call) -> None:
        """What held() does first. Afterwards, even if this raises, set call.over, and then call ended()."""
        nested = self.within()
        for _ in _looks():
            self._open.add(call)  # before it looks for a flip, as a flip looks for calls once it is announced
            if nested or not self._flipping or (not call.by_any and self._is_held()):
                call.entered = True
                self._local.mine = [*self._mine(), call]
                return
            self._open.discard(call)

    def ended(self, call: Call) -> None:
        """Forgets a call that is over."""
        self._open.discard(call)

    def within(self) -> bool:
        """Whether this thread is within a call."""
        return bool(self._mine())

    def in_use(self, results: Iterable[Any], method: str) -> None:
        """Lets flips wait until all `results` of `method` are freed, for at most _LONGEST_USE. Call it within a call.

        Each must be weakly referenceable.
        """
        self._results[next(self._numbers)] = method, [weakref.ref(result) for result in results]
        self._used()  # forgets earlier ones

    @contextmanager
    def alone(self, patience: float | None = None, stop: Callable[[float], bool] | None = None) -> Iterator[bool]:
        """Waits up to `patience` seconds (None: for ever) until no call is in progress, then keeps new ones out.

        Only one thread at a time may call it. stop: waits for the given seconds, and returns whether to give up; with
        it, results in use are waited for. Yields whether the wait succeeded. Raises RuntimeError if this thread is
        within a call, since it would wait for itself.
        """
        if self.within():
            raise RuntimeError("a flip within a call of the model")
        try:
            alone = False
            while stop is None or self._wait_for_results(stop):
                self._flipping = True
                alone = self._wait_for_calls(patience)
                if stop is None or not (alone and self._used()):
                    break
                self._flipping = alone = False  # one of the calls has returned a result that is in use
            yield alone
        finally:
            self._flipping = False

    def forked(self) -> None:
        """Call it in a forked child, where only this thread is left: forgets the other threads' calls and flips."""
        self._flipping, self._open = False, set()

    def _wait_for_calls(self, patience: float | None) -> bool:
        began = time.monotonic()
        for _ in _looks():
            self._open.difference_update([call for call in list(self._open) if call.over])
            if not self._open:
                return True
            if patience is not None and time.monotonic() - began > patience:
                return False
        return False

    def _wait_for_results(self, stop: Callable[[float], bool]) -> bool:
        """Waits until no result is in use, for at most _LONGEST_USE. Returns False if `stop` did."""
        began, said, collected = time.monotonic(), False, False
        while methods := self._used():
            waited, names = time.monotonic() - began, ", ".join(sorted(methods))
            if waited > _LONGEST_USE:
                self._results.clear()
                _logger.warning("a result of %s was in use for %.0f s; the model follows again, and a copy that is still "
                                "being made from it may mix two versions", names, waited)
            elif waited > 0.2 and not collected:
                collected = True
                gc.collect()  # perhaps only a cycle still has it, such as an exception's traceback
            elif waited > 1 and not said:
                said = True
                _logger.warning("a version waits, because a result of %s is in use: drop it, or copy it within "
                                "following.held(); the model follows again after %.0f s", names, _LONGEST_USE)
            elif stop(0.005):
                return False
        return True

    def _used(self) -> set[str]:
        """The methods whose results are in use. Forgets those that were freed: a callback could be lost to a signal."""
        for number, (_, references) in list(self._results.items()):
            if all(reference() is None for reference in references):
                self._results.pop(number, None)
        return {method for method, _ in list(self._results.values())}

    def _mine(self) -> list[Call]:
        """This thread's calls in progress, without those that another thread has ended."""
        return [call for call in getattr(self._local, "mine", ()) if not call.over]

    def _is_held(self) -> bool:
        """Whether a call that any thread may end is in progress."""
        return any(call.by_any and call.entered and not call.over for call in list(self._open))


def _looks() -> Iterator[None]:
    """Yields for ever: at once, then after 0.2 ms, and later every 5 ms."""
    pause = 0.0002
    while True:
        yield
        time.sleep(pause)
        pause = min(2 * pause, 0.005)


class Guarded:
    """Wraps a method so that each call is counted in `calls`. A copy or a pickle of it is the plain method."""

    def __init__(self, method: Callable[..., Any], calls: Calls, own: Any = None):
        """own: the attribute that other code had set instead of the method, if any."""
        functools.update_wrapper(self, method)  # callers look at its signature
        self._method, self._calls, self.own = method, calls, own

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        call = Call()
        try:
            self._calls.begin(call)
            result = self._method(*arguments, **named)
        finally:
            call.over = True
            self._calls.ended(call)
        return self._drawn(result) if isinstance(result, GeneratorType) else result

    def _drawn(self, generator: Any) -> Iterator[Any]:
        """A generator's values: the call lasts from the first one until it ends or is freed, in whatever thread."""
        with self._calls.held(by_any=True):
            return (yield from generator)

    def __reduce__(self) -> Any:
        return _plain, (self._method,)


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    return method
