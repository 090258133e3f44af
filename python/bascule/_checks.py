"""Rejects bad arguments before they reach the extension module, whose own error messages do not name the argument."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from operator import index
from os import PathLike
from typing import Any, TypeVar

from .errors import BasculeError

_Kind = TypeVar("_Kind")


def _wrong(what: str, expected: str, value: Any, hint: str = "") -> BasculeError:
    return BasculeError(f"{what}: expected {expected}, found {shown(value)}{hint}", "INVALID_ARGUMENT")


def shown(value: Any) -> str:
    with suppress(Exception):  # repr() refuses integers of thousands of digits
        return f"{value!r:.200}"
    return f"another {type(value).__name__}"


def text(what: str, value: Any) -> str:
    """`value`, if it is a str that can be encoded."""
    if not isinstance(value, str):
        raise _wrong(what, "a str", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BasculeError(f"{what}: {value!a} is not valid Unicode: {error.reason}", "INVALID_ARGUMENT") from None
    return value


def url(what: str, value: Any) -> str:
    """An endpoint's URL."""
    if isinstance(value, PathLike):
        raise _wrong(what, "a URL", value, "; for a folder, write a scheme, :// and its absolute path")
    if not isinstance(value, str):
        raise _wrong(what, 'a URL such as "shm:///run/user/1000/grpo"', value)
    return text(what, value)


def names(what: str, value: Any) -> list[str]:
    """A list of names; a single name becomes a list of one."""
    if isinstance(value, str):
        return [text(what, value)]
    if not isinstance(value, Iterable):
        raise _wrong(what, "names", value)
    return [text(what, each) for each in value]


def each_a(what: str, kind: type[_Kind], values: Any) -> list[_Kind]:
    """A list of objects of one class."""
    values = list(values) if isinstance(values, Iterable) else [values]
    for value in values:
        if not isinstance(value, kind):
            raise _wrong(what, f"objects of the class {kind.__name__}", value)
    return values


def whole(what: str, value: Any, least: int = 0, most: int = 2**31 - 1) -> int:
    """An integer of any library within these limits."""
    try:
        number = index(value)
    except TypeError:
        raise _wrong(what, "a whole number", value) from None
    if not least <= number <= most:
        raise _wrong(what, f"{least} or more{f', at most {most}' if number > most else ''}", number)
    return number


def flag(what: str, value: Any) -> bool:
    """True or False; not a text such as "false", which is true for Python."""
    if not isinstance(value, bool):
        raise _wrong(what, "True or False", value)
    return value


def seconds(what: str, value: Any) -> float:
    """A number of seconds, 0 or more; also math.inf."""
    try:
        number = float(value) if not isinstance(value, str) else float("nan")
    except (TypeError, ValueError, OverflowError):  # such as 10**400
        number = float("nan")
    if not number >= 0:
        raise _wrong(what, "seconds, 0 or more", value)
    return number


def expected_workers(value: Any) -> tuple[int, list[str]]:
    """A number of workers, and the names of those that must be among them."""
    try:
        return whole("expect_workers", index(value)), []
    except TypeError:
        pass
    if not isinstance(value, Iterable):
        raise _wrong("expect_workers", "a number of workers, or their names", value)
    expected = names("expect_workers", value)
    if not expected:
        raise BasculeError("expect_workers: expected at least one name, found none; give 0 if no worker need be there",
                           "INVALID_ARGUMENT")
    if "" in expected:
        raise BasculeError("expect_workers: a name is empty", "INVALID_ARGUMENT")
    return 0, expected
