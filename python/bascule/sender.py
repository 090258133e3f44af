"""The trainer's end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _core
from ._lifetime import lives, log_number, refuse_in_child, refuse_to_travel
from .errors import BasculeError
from .names import hf_names
from .tensors import (HOST, Followed, TensorSpec, current_stream, describe_all, describe_specs, device_of, is_module,
                      tensors_of, wait_for_stream)
from .views import copy_into, writable

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def names_of(worker_ids: Sequence[str]) -> list[str]:
    return [worker_ids] if isinstance(worker_ids, str) else list(worker_ids)


class Sender:
    """Takes an endpoint, and sends versions of registered tensors to the workers that join it.

    endpoint: "shm:///run/user/1000/grpo" and the like; README lists schemes and options. threads: that pack, 0: one
    per core. log: called with each line; else they go to logging.getLogger("bascule"), at level INFO.

    Every wait ends within 0.2 s of Ctrl-C. A send that was interrupted goes on; the next call that needs a slot waits
    for it, and its report has it in `updates`. One call at a time: another thread waits for its turn. Close it, or use
    it in a `with`; its workers are told.

    Raises BasculeError: ALREADY_EXISTS where another sender holds the endpoint, INVALID_ARGUMENT, PERMISSION_DENIED.
    """

    def __init__(self, endpoint: str, *, threads: int = 0, log: Callable[[str], None] | None = None):
        self._core: _core.Sender | None = _core.Sender(endpoint, threads, log_number(log))
        self._endpoint = endpoint
        self._turn = threading.RLock()
        self._model: Followed | None = None
        self._rename: Callable[[str], str] | None = hf_names
        self._specs = False
        self._device = HOST
        self._pending: Any = None  # what a send under way may still read
        self._forked = False
        lives(self)

    def register_model(self, model: torch.nn.Module | Mapping[str, Tensor] | Sequence[TensorSpec], *,
                       rename: Callable[[str], str] | None = hf_names) -> None:
        """Names the tensors to send; reads no elements yet. Once a sender.

        model: a module, of which parameters and persistent buffers are sent; a mapping of names to tensors; or specs
        alone, for a trainer that gathers one tensor at a time (stream()). Each send follows parameters that were
        replaced or moved. rename: makes a tensor's name in the model the one under which it travels; None: as it is.

        Raises BasculeError: INVALID_ARGUMENT names the tensor and what is wrong; FAILED_PRECONDITION on a second call.
        """
        with self._turn:
            core = self._open()
            if self._model is not None or self._specs:
                raise BasculeError("register_model: a model is registered already; one sender and one path a model",
                                   "FAILED_PRECONDITION")
            if not is_module(model) and not isinstance(model, Mapping):
                specs = list(model)
                if not all(isinstance(spec, TensorSpec) for spec in specs):
                    raise BasculeError("register_model: expected a module, a mapping of names to tensors, or TensorSpecs, "
                                       f"found {type(model).__name__}", "INVALID_ARGUMENT")
                if rename:
                    specs = [replace(spec, name=rename(spec.name)) for spec in specs]
                self._device = device_of(specs)
                core.register_specs(describe_specs(specs), self._device)
                self._specs = True
            else:
                followed = Followed(model, rename)
                core.register_tensors(followed.all)
                self._model = followed
                self._device = followed.device
            self._rename = rename

    def wait_for_workers(self, count: int, timeout: float = 60) -> list[str]:
        """Blocks until versions can be sent to `count` workers; their names in the order they joined.

        Raises BasculeTimeoutError, which names those that came, and the one that was refused last, with the reason.
        """
        with self._turn:
            return self._open().wait_for_workers(count, timeout)

    def send(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
             worker_ids: Sequence[str] = ()) -> _core.SendReport:
        """Packs, publishes, and returns once every worker serves the version or was evicted: report.complete tells.

        weights: other tensors of the same names, types and shapes, in place of the registered ones. worker_ids: names
        of workers, or of groups; empty: all. The others keep what they serve.

        Raises BasculeError, and no worker has flipped; it names the worker, version or tensor. BasculeTimeoutError: no
        slot, pack or delivery in time.
        """
        with self._turn:
            return self._open().send(self._prepare(weights), names_of(worker_ids))

    def send_async(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
                   worker_ids: Sequence[str] = ()) -> None:
        """As send(), but returns once the weights may be changed again; wait_async() returns the report."""
        with self._turn:
            self._open().send_async(self._prepare(weights), names_of(worker_ids))

    def wait_async(self, timeout: float | None = None) -> _core.SendReport:
        """Blocks until the pending send has settled; for `timeout` seconds at most, then it stays pending.

        Raises BasculeError: FAILED_PRECONDITION where no send is pending; BasculeTimeoutError.
        """
        with self._turn:
            report = self._open().wait_async(timeout)
            self._pending = None
            return report

    def update_weights(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None) -> None:
        """As send_async(), but needs no wait_async(): the next report has its outcome in `updates`."""
        with self._turn:
            self._open().update_weights(self._prepare(weights))

    def stream(self, named: Iterable[tuple[str, Tensor]], worker_ids: Sequence[str] = ()) -> _core.SendReport:
        """A send of tensors that come one after the other; each may be gone when the next one comes.

        named: every registered name once, in any order, with a tensor of its shape; floating-point tensors are cast to
        the type that travels. An exception, also of `named`, aborts the version, and the workers serve on what they
        have.

        Raises BasculeError: INVALID_ARGUMENT names a tensor that is unknown, missing, given twice, or of another shape.
        """
        with self._turn:
            core = self._open()
            loan = core.loan(names_of(worker_ids))
            try:
                self._fill(loan, named)
                wait_for_stream(self._device)
                return core.publish(loan)
            except BaseException:
                loan.drop()
                raise

    async def asend(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
                    worker_ids: Sequence[str] = ()) -> _core.SendReport:
        """send() in a thread of its own. Where the task is cancelled, the send goes on, as behind Ctrl-C."""
        import asyncio

        core = self._open()
        sending = asyncio.ensure_future(asyncio.to_thread(self.send, weights, worker_ids))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            while not sending.done():
                core.let_go()
                await asyncio.wait([sending], timeout=0.05)
            if not sending.cancelled():
                sending.exception()  # nobody else looks at it
            raise

    @property
    def version(self) -> int:
        """The last version that was published here; before the first, the last of the sender before it."""
        return self._open().version()

    def close(self) -> None:
        """Gives up a pending send, says goodbye to all workers, and frees the slots. A second call does nothing.

        A call of another thread that waits for workers ends with CANCELLED.
        """
        if self._forked:
            return
        while not self._turn.acquire(timeout=0.05):  # a call of another thread
            if (core := self._core) is not None:
                core.let_go()
        try:
            core, self._core = self._core, None
            self._model = self._pending = None
            if core is not None:
                core.close()
        finally:
            self._turn.release()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise refuse_to_travel("Sender")

    def __repr__(self) -> str:
        return f"<Sender {self._endpoint}{'' if self._core is not None else ', closed'}>"

    # ----

    def _open(self) -> _core.Sender:
        if self._forked:
            raise refuse_in_child("Sender")
        if self._core is None:
            raise BasculeError("this Sender is closed", "FAILED_PRECONDITION")
        return self._core

    def _prepare(self, weights: Any) -> _core.Tensors | None:
        """The given weights, described; or none, and the registered ones are followed to where they lie now."""
        core = self._open()
        if weights is None:
            if self._model is not None:
                self._model.follow(core.move)
                if self._device != HOST:
                    core.set_stream(current_stream(self._device))
            return None
        named = tensors_of(weights, self._rename)
        described = describe_all(named)
        self._pending = named
        return described

    def _fill(self, loan: _core.Loan, named: Iterable[tuple[str, Any]]) -> None:
        places = loan.tensors()
        left = set(places)
        for name, tensor in named:
            travels = self._rename(name) if self._rename else name
            if travels not in places:
                raise BasculeError(f"stream: tensor {travels} was not registered", "INVALID_ARGUMENT")
            if travels not in left:
                raise BasculeError(f"stream: tensor {travels} was given twice", "INVALID_ARGUMENT")
            copy_into(writable(places[travels]), tensor, travels)
            left.discard(travels)
        if left:
            raise BasculeError(f"stream: {len(left)} registered tensors did not come, as {min(left)}",
                               "INVALID_ARGUMENT")

    def _abandon(self) -> None:
        self._forked = True
        self._turn = threading.RLock()  # a thread that is not here may have held it
        if self._core is not None:
            self._core.abandon()
