"""Keeps a Hugging Face `transformers` model, or any torch module, at the newest version automatically.

    model = AutoModelForCausalLM.from_pretrained(…)
    following = bascule.hf.follow(model, "shm:///run/user/1000/grpo")
    following.wait()              # for the first version
    model.generate(…)             # each token uses the newest version; an idle model also follows

It needs torch; transformers itself is not imported.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import _core
from ._calls import Calls, Guarded
from ._checks import seconds, text, url, whole
from ._guards import guard
from ._lifetime import aclose, lives, refuse_to_travel
from .errors import BasculeError, BasculeTimeoutError
from .names import hf_names, refuse_adapters
from .places import Loader, Places
from .receiver import Receiver
from .tensors import TensorSpec, is_module

_LOOK_EVERY = 0.002  # seconds
_LONGEST_PAUSE = 5.0  # seconds between two attempts after a load failed
_logger = logging.getLogger("bascule")


def follow(model: Any, endpoint: str, *, worker: str = "", in_place: bool = False, at: str = "token",
           rename: Callable[[str], str] | None = hf_names) -> Following:
    """Joins `endpoint` as `worker` (default: host and process id), and keeps `model` at the newest version.

    Returns at once; a thread follows the endpoint. The sender may start later.

    in_place: False copies versions into the model's tensors and casts floating-point types that differ. True makes the
    model's parameters and persistent buffers views of the slot itself: nothing is copied, the tensors are read-only,
    and the model's own memory is freed. Addresses then change with each version, so CUDA graphs and torch.compile do
    not work. at: "token" flips between two calls of the model's forward, including those within generate(); its cached
    keys and values then come from several versions. "call" does not flip within generate(). If generate() then takes
    longer than the trainer's flip_timeout, the sender evicts this worker until generate() has ended. rename: maps the
    name of a model's tensor to the sender's name for it.

    A flip waits for calls of the model, and of its parts that have a generate(). It also waits for copy.deepcopy(),
    pickle, torch.save(model), save_pretrained(), load_state_dict() and to(), and until the dict that state_dict()
    returned, and each tensor in it, is freed, for at most 60 seconds. Other code that reads or writes the tensors, such
    as a direct call of another part, may see mixed weights, unless it runs within following.held(). A call must not
    wait for another thread that calls the model, or both may block for ever: a flip that waits for the first call also
    holds back the second.

    The sender must send at least one of several tied tensors; if it sends several, they must be equal. Raises BasculeError: INVALID_ARGUMENT for a wrong
    argument; FAILED_PRECONDITION if the model, or a part of it, follows an endpoint already.
    """
    url("endpoint", endpoint)
    text("worker", worker)
    if not is_module(model):
        raise BasculeError(f"follow: expected a torch module, found {type(model).__name__}", "INVALID_ARGUMENT")
    refuse_adapters(model, rename, "follow the model before PEFT wraps it, or merge the adapter (merge_and_unload()); if "
                    "the trainer sends the adapter alone, bascule.peft.follow(); if it sends the whole model under PEFT's "
                    "names, rename=None at both ends")
    return start_following(lambda: Places(model, rename, in_place), model, endpoint, worker, at)


def start_following(places: Callable[[], Loader], model: Any, endpoint: str, worker: str, at: str) -> Following:
    """The rest of follow(), for whatever tensors of the model `places` finds."""
    if at not in ("token", "call"):
        raise BasculeError(f'at: expected "token" or "call", found {at!r}', "INVALID_ARGUMENT")
    if any(isinstance(method, Guarded) for part in model.modules() for method in vars(part).values()):
        raise BasculeError("this model, or a part of it, follows an endpoint already; close() that following first",
                           "FAILED_PRECONDITION")
    return Following(places(), endpoint, worker or f"{socket.gethostname()}-{os.getpid()}", at)


class Following:
    """A model that follows an endpoint, made by follow() here or in bascule.peft.

    Call close(), or use it in a `with`. After that the model keeps its last weights.
    """

    def __init__(self, places: Loader, endpoint: str, worker: str, at: str):
        self._places = places
        self._calls = Calls()
        self._version = 0
        self._error: BaseException | None = None
        self._receiver = Receiver(endpoint, worker=worker, device=places.device, accept=self._accept)
        self._closing = threading.RLock()  # a signal handler may also close
        self._end = os.eventfd(0)  # readable: to end; -1: ended
        self._unguard = guard(places.model, self._calls, at, places.in_place)
        self._ended = False  # unlike Thread.is_alive(), not wrong after a join() that a signal interrupted
        threading.Thread(target=self._follow, name=f"bascule-{worker}", daemon=True).start()
        lives(self)

    @property
    def version(self) -> int:
        """The version that the model has, or 0 before the first. Does not block."""
        return self._version

    @property
    def error(self) -> BaseException | None:
        """Why the model could not load the newest version, or None. Does not block."""
        return self._error

    def status(self) -> _core.ReceiverStatus:
        """A snapshot of the receiver. Any thread may call it; it does not block."""
        return self._receiver.status()

    def wait(self, version: int = 1, timeout: float = 60) -> int:
        """Blocks until the model has `version` or a newer one, and returns the model's version.

        Raises BasculeTimeoutError after `timeout` seconds, with the reason if one is known; BasculeError:
        FAILED_PRECONDITION if the model no longer follows an endpoint, INVALID_ARGUMENT for a negative timeout.
        """
        version, timeout = whole("version", version, most=2**63 - 1), seconds("timeout", timeout)
        deadline = time.monotonic() + timeout
        while self._version < version:
            if self._ended:
                raise BasculeError("this model no longer follows an endpoint", "FAILED_PRECONDITION")
            if (left := deadline - time.monotonic()) <= 0:
                reason = self._error or self._receiver.status().error
                raise BasculeTimeoutError(f"no version {version} of the model within {timeout} seconds"
                                          + (f": {reason}" if reason else ""), "DEADLINE_EXCEEDED")
            time.sleep(min(left, _LOOK_EVERY))
        return self._version

    @contextmanager
    def held(self) -> Iterator[int]:
        """Keeps the model at its version in a `with` block, and yields that version's number.

            with following.held() as version:
                torch.save(model.state_dict(), f"{version}.pt")

        Blocks while a version is being loaded. Any thread may hold the model, also several at once; another thread may
        continue the block and end it, as thread pools do with generators. If it is held longer than the trainer's
        flip_timeout, the sender evicts this worker until the block has ended. A send() to this worker within the block
        waits that long.
        """
        with self._calls.held(by_any=True):
            yield self._version

    def close(self) -> None:
        """Waits for the model's calls in progress, then leaves the endpoint. A second call does nothing.

        Raises BasculeError (FAILED_PRECONDITION), and changes nothing, if this thread is within a call of the model,
        or holds it.
        """
        if self._calls.within():
            raise BasculeError("close() within a call of the model, or within held(), which it would wait for; call it "
                               "after that", "FAILED_PRECONDITION")
        self._close(patience=None)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Following:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await aclose(self)

    def __reduce__(self) -> Any:
        raise refuse_to_travel("Following")

    # ----

    def _close(self, patience: float | None) -> None:
        """Stops following, and closes the receiver once no call of the model is in progress.

        patience: seconds to wait for those calls; None: for ever. If they take longer, the receiver stays open.
        """
        if not self._closing.acquire(timeout=-1 if patience is None else patience):
            return
        try:
            if self._end < 0:
                return
            os.eventfd_write(self._end, 1)
            since = time.monotonic()
            while not self._ended:
                if patience is not None and time.monotonic() - since > patience:
                    return
                time.sleep(_LOOK_EVERY)
            with self._calls.alone(patience) as alone:
                if not alone:
                    return
                self._places.keep()
                self._unguard()
            self._receiver.close()
            end, self._end = self._end, -1
            if end >= 0:  # else a signal handler has closed it within this call
                os.close(end)
        finally:
            self._closing.release()

    def _abandon(self) -> None:
        """Call it in a forked child, which does not have the thread."""
        self._end, self._ended = -1, True
        self._closing = threading.RLock()
        self._calls.forked()
        self._unguard()

    def _accept(self, tensors: list[TensorSpec], description: str) -> None:
        try:
            self._places.check_offer(tensors, description)
        except BasculeError as error:
            self._error = error
            raise
        except RuntimeError:  # a module was added or removed meanwhile; load() checks again
            pass

    def _follow(self) -> None:
        try:
            self._flip_until_the_end()
        finally:
            self._ended = True

    def _flip_until_the_end(self) -> None:
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
                self._ends_within(pause)

    def _ends_within(self, seconds: float) -> bool:
        """Whether close() is called within that time."""
        end = select.poll()
        end.register(self._end, select.POLLIN)
        return bool(end.poll(1000 * seconds))

    def _flip(self) -> None:
        with self._calls.alone(stop=self._ends_within) as alone:
            if not alone:
                return  # it ends
            self._places.settle()
            if (version := self._receiver.take(timeout=0)) is None:
                return
            try:
                self._places.load(self._receiver.weights(), self._receiver.description)
            except BaseException as error:
                self._places.keep()  # the trainer may overwrite the previous slot
                self._error = error  # before the trainer gets it
                self._receiver.finish(error)
                raise
            self._version, self._error = version, None
            self._receiver.finish()
