"""Closes this process's senders and receivers before the interpreter exits, and disables them in a forked child."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from . import _core
from .errors import BasculeError

_living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by number, in order of creation
_logger = logging.getLogger("bascule")
_logs: weakref.WeakValueDictionary[int, Log] = weakref.WeakValueDictionary()  # a function may hold its sender
_numbers = itertools.count(1)
_log_thread: threading.Thread | None = None
_starting = threading.Lock()


def lives(end: Any) -> None:
    """Registers a sender or receiver, which has _close() and _abandon()."""
    _living[next(_numbers)] = end


class Log:
    """Passes lines that carry its `number` to `call`, or to logging.getLogger("bascule") if `call` is None or gone.

    There, a line about something that went wrong has the level WARNING, and any other line INFO.
    """

    def __init__(self, call: Callable[[str], None] | None = None):
        global _log_thread
        if call is not None and not callable(call):
            raise BasculeError(f"log: expected a function of a line, found {type(call).__name__}", "INVALID_ARGUMENT")
        with _starting:
            if _log_thread is None:
                _log_thread = threading.Thread(target=_log, name="bascule-log", daemon=True)
                _log_thread.start()
        self.call = call
        self.number = 0 if call is None else next(_numbers)
        if call is not None:
            _logs[self.number] = self


def refuse_in_child(what: str) -> BasculeError:
    """The error for using the parent's object in a forked child."""
    return BasculeError(f"this {what} belongs to the process that this one was forked from; make one here, or start "
                        "processes with multiprocessing's spawn", "FAILED_PRECONDITION")


def refuse_to_travel(what: str) -> BasculeError:
    """The error for a copy or a pickle of an object that cannot be copied."""
    return BasculeError(f"a {what} cannot be copied or pickled: it has threads and memory of this process; make "
                        "another one where you need it", "FAILED_PRECONDITION")


async def aclose(end: Any) -> None:
    """Closes a sender, receiver or following in a separate thread, so that other tasks run while it waits."""
    import asyncio

    await asyncio.to_thread(end.close)


def _log() -> None:
    while lines := _core.take_log_lines():
        for number, line, is_warning in lines:
            log = _logs.get(number)
            try:
                log.call(line) if log is not None else _logger.log(logging.WARNING if is_warning else logging.INFO, "%s", line)
            except BaseException:  # also SystemExit, and a handler's errors: the other lines are still logged
                with suppress(BaseException):
                    _logger.exception("a Sender's log function failed")
            del log  # so that waiting keeps no sender alive


def _close_all() -> None:
    patience = 5.0  # seconds: another thread's call may never end
    try:
        for _, end in sorted(_living.items(), reverse=True):  # newest first: an object may use older ones
            try:
                end._close(patience=patience)
            except KeyboardInterrupt:  # the others are still closed, without waiting
                patience = 0
            except Exception:
                _logger.exception("closing %r", end)
        _core.stop_logs()
        if _log_thread is not None:
            _log_thread.join(timeout=1)
    finally:  # also after a signal: threads in calls must not return to Python
        _core.interpreter_ends()
        time.sleep(0.01)  # threads that are returning just now reach the check


def _abandon_all() -> None:
    global _log_thread, _starting
    _log_thread, _starting = None, threading.Lock()
    _core.renew_logs()
    for end in list(_living.values()):
        end._abandon()
    _living.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
