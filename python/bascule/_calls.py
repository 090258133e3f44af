"""Lets calls of a model run at the same time, and flips run alone."""

from __future__ import annotations

import functools
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


class Calls:
    """A flip waits for the calls in progress; new calls wait for the flip. Any thread may call the methods."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0  # threads with a call in progress
        self._holds = 0  # calls in progress that another thread may end
        self._flipping = False
        self._local = threading.local()  # nested: this thread's _Nested
        self._results: dict[int, tuple[str, Any]] = {}  # in use: each one's method, and what is alive of it
        self._numbers = itertools.count()

    @contextmanager
    def held(self, by_any: bool = False) -> Iterator[None]:
        """A call in progress. Blocks first while a flip runs or waits, unless it is nested in this thread's call.

        by_any: another thread may continue the `with` block, as thread pools do with generators, and end it. It may
        make calls in the block: while a flip waits for the end of such a block, calls begin.
        """
        nested = self._begin(by_any)
        try:
            yield
        finally:  # also after a KeyboardInterrupt
            self._end(nested, by_any)

    def within(self) -> bool:
        """Whether this thread is within a call."""
        return self._nested().depth > 0

    def in_use(self, results: Iterable[Any], method: str) -> None:
        """Lets flips wait until all `results` of `method` are freed, for at most _LONGEST_USE. Call it within a call.

        Each must be weakly referenceable.
        """
        number, alive, in_use = next(self._numbers), {}, self._results

        # The collector may call it in any thread, which may have the lock: it takes none, and the flip looks again.
        def freed(reference: Any) -> None:
            del alive[id(reference)]
            if not alive:
                in_use.pop(number, None)

        for result in results:
            reference = weakref.ref(result, freed)
            alive[id(reference)] = reference  # by id: a tensor's == compares its elements
        if alive:
            in_use[number] = method, alive

    @contextmanager
    def alone(self, patience: float | None = None, stop: Callable[[float], bool] | None = None) -> Iterator[bool]:
        """Waits up to `patience` seconds (None: for ever) until no call or other flip runs, then keeps new ones out.

        stop: waits for the given seconds, and returns whether to give up; with it, results in use are waited for.
        Yields whether the wait succeeded. Raises RuntimeError if this thread is within a call, since it would wait for
        itself.
        """
        if self.within():
            raise RuntimeError("a flip within a call of the model")
        mine = alone = False
        try:
            while stop is None or self._wait_for_results(stop):
                with self._changed:
                    mine = self._changed.wait_for(lambda: not self._flipping, patience)
                    if mine:
                        self._flipping = True
                        alone = self._changed.wait_for(lambda: self._inside == 0, patience)
                if stop is None or not (alone and self._results):
                    break
                self._let_calls_in()  # one of the calls has returned a result that is in use
                mine = alone = False
            yield alone
        finally:
            if mine:
                self._let_calls_in()

    def forked(self) -> None:
        """Call it in a forked child, where only this thread is left: frees what the other threads held."""
        self._changed, self._flipping = threading.Condition(), False

    def _let_calls_in(self) -> None:
        with self._changed:
            self._flipping = False
            self._changed.notify_all()

    def _wait_for_results(self, stop: Callable[[float], bool]) -> bool:
        """Waits until no result is in use, for at most _LONGEST_USE. Returns False if `stop` did."""
        began, said = time.monotonic(), False
        while methods := {method for method, _ in list(self._results.values())}:  # the collector may change it
            waited, names = time.monotonic() - began, ", ".join(sorted(methods))
            if waited > _LONGEST_USE:
                self._results.clear()
                _logger.warning("a result of %s was in use for %.0f s; the model follows again, and a copy that is still "
                                "being made from it may mix two versions", names, waited)
            elif waited > 1 and not said:
                said = True
                _logger.warning("a version waits, because a result of %s is in use: drop it, or copy it within "
                                "following.held(); the model follows again after %.0f s", names, _LONGEST_USE)
            elif stop(0.005):
                return False
        return True

    def _begin(self, by_any: bool) -> _Nested:
        nested = self._nested()
        with self._changed:
            if nested.depth == 0:
                self._changed.wait_for(lambda: not self._flipping or (self._holds and not by_any))
                self._inside += 1
            nested.depth += 1
            self._holds += by_any
        return nested

    def _end(self, nested: _Nested, by_any: bool) -> None:
        with self._changed:
            nested.depth -= 1
            self._holds -= by_any
            if nested.depth == 0:
                self._inside -= 1
                self._changed.notify_all()

    def _nested(self) -> _Nested:
        if not hasattr(self._local, "nested"):
            self._local.nested = _Nested()
        return self._local.nested


class _Nested:
    """How many calls that one thread began are in progress, the outermost included."""

    depth = 0


class Guarded:
    """Wraps a method so that each call is counted in `calls`. A copy or a pickle of it is the plain method."""

    def __init__(self, method: Callable[..., Any], calls: Calls, own: Any = None):
        """own: the attribute that other code had set instead of the method, if any."""
        functools.update_wrapper(self, method)  # callers look at its signature
        self._method, self._calls, self.own = method, calls, own

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        with self._calls.held():
            result = self._method(*arguments, **named)
        return self._drawn(result) if isinstance(result, GeneratorType) else result

    def _drawn(self, generator: Any) -> Iterator[Any]:
        """A generator's values: the call lasts from the first one until it ends or is freed, in whatever thread."""
        with self._calls.held(by_any=True):
            return (yield from generator)

    def __reduce__(self) -> Any:
        return _plain, (self._method,)


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    return method
