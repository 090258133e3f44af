"""Senders and receivers of this process: closed before the interpreter goes, and dead in a forked child."""

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

_living: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by number: in the order they were made
_logger = logging.getLogger("bascule")
_logs: weakref.WeakValueDictionary[int, Log] = weakref.WeakValueDictionary()  # a function may hold its sender
_numbers = itertools.count(1)
_log_thread: threading.Thread | None = None
_starting = threading.Lock()


def lives(end: Any) -> None:
    """`end` has close() and _abandon()."""
    _living[next(_numbers)] = end


class Log:
    """Where threads of Bascule log by `number`: `call`, or logging.getLogger("bascule") where it is None or gone."""

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
    return BasculeError(f"this {what} belongs to the process that this one was forked of; make one here (or start "
                        "processes by multiprocessing's spawn)", "FAILED_PRECONDITION")


def refuse_to_travel(what: str) -> BasculeError:
    return BasculeError(f"a {what} cannot be copied or pickled: it has threads and memory of this process; make "
                        "another one where you need it", "FAILED_PRECONDITION")


def _log() -> None:
    while lines := _core.take_log_lines():
        for number, line in lines:
            log = _logs.get(number)
            try:
                log.call(line) if log is not None else _logger.info("%s", line)
            except BaseException:  # SystemExit, too, and of a handler: the other lines are logged all the same
                with suppress(BaseException):
                    _logger.exception("the log of a Sender")
            del log  # while this waits, it keeps no sender alive


def _close_all() -> None:
    patience = 5.0  # seconds: a call of another thread may never end
    try:
        for _, end in sorted(_living.items(), reverse=True):  # what another one uses was made before it
            try:
                end._close(patience=patience)
            except KeyboardInterrupt:  # the others are closed all the same, and at once
                patience = 0
            except Exception:
                _logger.exception("closing %r", end)
        _core.stop_logs()
        if _log_thread is not None:
            _log_thread.join(timeout=1)
    finally:  # also of a signal: threads in calls must not come back
        _core.interpreter_ends()
        time.sleep(0.01)  # those that are on their way arrive


def _abandon_all() -> None:
    global _log_thread, _starting
    _log_thread, _starting = None, threading.Lock()
    _core.renew_logs()
    for end in list(_living.values()):
        end._abandon()
    _living.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
