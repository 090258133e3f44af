"""Lets an engine's function decide whether its receiver takes a sender."""

from __future__ import annotations

import itertools
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
        self.accept = accept
        self.number = next(_numbers)
        _asked[self.number] = self


def _decide(number: int, tensors: list[tuple[str, str, list[int]]], description: str) -> None:
    """Raises what refuses the sender. On a thread of the receiver."""
    asked = _asked.get(number)
    if asked is None:
        raise BasculeError("this receiver is gone", "CANCELLED")
    answer: Any = asked.accept([offered_spec(*tensor) for tensor in tensors], description)
    if answer is not None:  # such as False, or a coroutine
        raise BasculeError(f"accept: expected None, or an exception that says why the sender is refused, found {answer!r:.200}",
                           "INVALID_ARGUMENT")


_core.decide_by(_decide)
