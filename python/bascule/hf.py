"""A model of Hugging Face's `transformers`, or any module of torch, that follows an endpoint by itself.

    model = AutoModelForCausalLM.from_pretrained(…)
    following = bascule.hf.follow(model, "shm:///run/user/1000/grpo")
    following.wait()              # for the first version
    model.generate(…)             # each token by the newest version; also while the model is idle, it follows

It needs torch; transformers itself is not imported.
"""

from __future__ import annotations

import functools
import logging
import os
import select
import socket
import threading
import time
import types
from collections.abc import Callable
from typing import Any

from . import _core
from ._calls import Calls
from ._lifetime import lives, refuse_to_travel
from .errors import BasculeError, BasculeTimeoutError
from .names import hf_names
from .places import Places
from .receiver import Receiver
from .tensors import is_module

_LONGEST_PAUSE = 5.0  # seconds between two attempts to load what could not be loaded
_logger = logging.getLogger("bascule")


def follow(model: Any, endpoint: str, *, worker: str = "", in_place: bool = False, at: str = "token",
           rename: Callable[[str], str] | None = hf_names) -> Following:
    """Joins `endpoint` as `worker` (default: host and process), and keeps `model` at its newest version.

    in_place: the model's parameters and persistent buffers become the slot itself, read-only and without a copy; the
    model's own memory is freed. Their addresses change with each version, which CUDA graphs and torch.compile do not
    survive. Else versions are copied into the model's tensors, cast where floating-point types differ.
    at: "token": between two calls of the model's forward, also within generate(), whose keys and values then are of
    several versions; "call": not within generate(). A generate() that takes longer than the trainer's flip_timeout
    then costs this worker its place, until it has ended.
    rename: makes a tensor's name in the model that of the sender's.

    Of tensors that the model ties, one must come. Raises BasculeError: INVALID_ARGUMENT.
    """
    if not is_module(model):
        raise BasculeError(f"follow: expected a module of torch, found {type(model).__name__}", "INVALID_ARGUMENT")
    if at not in ("token", "call"):
        raise BasculeError(f'at: expected "token" or "call", found {at!r}', "INVALID_ARGUMENT")
    return Following(Places(model, rename, in_place), endpoint, worker or f"{socket.gethostname()}-{os.getpid()}", at)


class Following:
    """A model that follows. Close it, or use it in a `with`: the model then keeps the weights that it has."""

    def __init__(self, places: Places, endpoint: str, worker: str, at: str):
        self._places = places
        self._receiver = Receiver(endpoint, worker=worker, device=places.device)
        self._calls = Calls()
        self._told = threading.Condition()
        self._version = 0
        self._error: BaseException | None = None
        self._end = os.eventfd(0)
        self._unhook = _hook(places.model, self._calls, at)
        self._thread = threading.Thread(target=self._follow, name=f"bascule-{worker}", daemon=True)
        self._thread.start()
        lives(self)

    @property
    def version(self) -> int:
        """That the model has; 0: none yet."""
        return self._version

    @property
    def error(self) -> BaseException | None:
        """Why the model does not have the newest version; None: it has, or is about to."""
        return self._error

    def status(self) -> _core.ReceiverStatus:
        return self._receiver.status()

    def wait(self, version: int = 1, timeout: float = 60) -> int:
        """Blocks until the model has `version` or a newer one; which one it has.

        Raises BasculeTimeoutError, with the reason where there is one.
        """
        deadline = time.monotonic() + timeout
        with self._told:
            while self._version < version:
                if not self._thread.is_alive():
                    raise BasculeError("this model does not follow any more", "FAILED_PRECONDITION")
                if (left := deadline - time.monotonic()) <= 0:
                    reason = self._error or self._receiver.status().error
                    raise BasculeTimeoutError(f"no version {version} of the model within {timeout} seconds"
                                              + (f": {reason}" if reason else ""), "DEADLINE_EXCEEDED")
                self._told.wait(min(left, 0.05))
        return self._version

    def close(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        self._close(patience=None)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise refuse_to_travel("Following")

    # ----

    def _close(self, patience: float | None) -> None:
        """patience: seconds to wait for calls of the model; None: for ever."""
        if self._end < 0:
            return
        os.eventfd_write(self._end, 1)
        self._thread.join(patience)
        if self._thread.is_alive():
            return
        end, self._end = self._end, -1
        os.close(end)
        self._unhook()
        with self._calls.alone():
            self._places.keep()
        self._receiver.close()

    def _abandon(self) -> None:
        """In a forked child, where the thread is not."""
        self._end = -1
        self._unhook()

    def _follow(self) -> None:
        ready = select.poll()
        ready.register(self._receiver.fileno(), select.POLLIN)
        ready.register(self._end, select.POLLIN)
        pause = 0.0
        while True:
            if any(descriptor == self._end for descriptor, _ in ready.poll()):
                return
            try:
                self._flip()
                pause = 0.0
            except Exception as error:
                self._error = error
                pause = min(2 * pause or 0.5, _LONGEST_PAUSE)
                _logger.warning("the model keeps version %d: %s; next attempt in %.1f s", self._version, error, pause)
                stop = select.poll()
                stop.register(self._end, select.POLLIN)
                stop.poll(1000 * pause)

    def _flip(self) -> None:
        with self._calls.alone():
            self._places.settle()
            if (version := self._receiver.take(timeout=0)) is None:
                return
            try:
                self._places.load(self._receiver.weights())
            except BaseException as error:
                self._places.keep()  # the slot before is the trainer's again
                self._error = error  # before the trainer hears of it
                self._receiver.finish(error)
                raise
            with self._told:
                self._version, self._error = version, None
                self._told.notify_all()
            self._receiver.finish()


def _hook(model: Any, calls: Calls, at: str) -> Callable[[], None]:
    """Each call of the model, or of its generate(), is a call of `calls`; the returned function ends that."""
    # Plain functions: a copy of the model keeps them, and needs nothing of this process but `calls`.
    hooks = [model.register_forward_pre_hook(lambda *_: calls.begin(), prepend=True),
             model.register_forward_hook(lambda *_: calls.end(), always_call=True)]
    generate = getattr(type(model), "generate", None) if at == "call" else None
    if generate is not None:
        @functools.wraps(generate)
        def whole(self: Any, *arguments: Any, **named: Any) -> Any:
            calls.begin()
            try:
                return generate(self, *arguments, **named)
            finally:
                calls.end()

        model.generate = types.MethodType(whole, model)

    def unhook() -> None:
        for hook in hooks:
            hook.remove()
        if generate is not None:
            del model.generate

    return unhook
