"""Sender: the trainer's end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from . import _core
from ._checks import expected_workers, flag, names, seconds, text, url, whole
from ._lifetime import Log, aclose, lives, refuse_in_child, refuse_to_travel
from .errors import BasculeError, BasculeTimeoutError
from .followed import Followed
from .lora import active_adapter, adapter_of, merged_of
from .modules import check_sendable
from .names import hf_names, refuse_adapters
from .progress import Progress, Stages
from .sent import Sent, plain
from .sharded import HeldBoxes, HeldModel, rank_and_ranks
from .tensors import (HOST, TensorSpec, current_stream, describe_all, describe_specs, device_of, is_module,
                      tensors_of, travels_as, wait_for_stream)
from .views import copy_into, writable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_Result = TypeVar("_Result")


def _renamed_specs(model: Any, rename: Callable[[str], str] | None) -> list[TensorSpec]:
    specs = list(model) if isinstance(model, Iterable) else [model]
    if not all(isinstance(spec, TensorSpec) for spec in specs):
        raise BasculeError("register_model: expected a module, a mapping of names to tensors, or TensorSpecs, found "
                           f"{type(model).__name__}", "INVALID_ARGUMENT")
    return [replace(spec, name=travels_as(spec.name, rename)) for spec in specs]


def _refuse_single_copy(endpoint: str) -> None:
    if "1" in parse_qs(urlsplit(endpoint).query).get("slots", ()):
        raise BasculeError("slots=1: engines read the trainer's own tensors there, whose scale is not folded in; use slots=2",
                           "INVALID_ARGUMENT")


class _Deadline:
    """When a call's timeout ends, which also covers its wait for another thread's call."""

    def __init__(self, call: str, timeout: float):
        self.call, self.timeout, self._end = call, timeout, time.monotonic() + timeout

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @contextmanager
    def turn(self, lock: Any) -> Iterator[None]:
        if not lock.acquire(timeout=min(self.left(), threading.TIMEOUT_MAX)):
            raise BasculeTimeoutError(f"{self.call}: another thread's call of this sender took longer than "
                                      f"{self.timeout} seconds, and calls run one at a time", "DEADLINE_EXCEEDED")
        try:
            yield
        finally:
            lock.release()


class Sender:
    """Owns an endpoint, and sends versions of registered tensors to the workers that join it.

    endpoint: a URL such as "shm:///run/user/1000/grpo"; docs/guide/endpoints.md lists schemes and options. threads: how
    many threads pack; 0: one per core. log: called with each log line, in Bascule's thread; default:
    logging.getLogger("bascule"), at level WARNING if something went wrong, such as a lost worker, else INFO. progress:
    called with a Progress, in the same thread, whenever a worker has finished a stage of a send; it may be a little late.
    expect_workers: how many workers should serve each version, or the names of the workers or groups that should. If
    fewer do, the report of a send to all workers is not complete. By default one must; 0 for a trainer that may be
    alone.

    sharded: for a trainer whose tensors are sharded over several processes of this host, as DTensors (FSDP2, tensor
    parallelism). Each process of torch.distributed's default group makes a sender with the same endpoint, and all make
    the same calls of register_model(), send(step=n), send_async(step=n) and wait_async(). Each sends its shards, without
    a gather, and gets the same reports. Workers are rank 0's: it alone waits for them, and its expect_workers counts.

    The constructor does not block. Every wait ends within 0.2 s of Ctrl-C. An interrupted send continues; the next call
    that needs a slot waits for that send, and reports its outcome in `updates`. Calls run one at a time; another thread
    waits for its turn, and a call's `timeout` covers that wait. Call close(), or use the sender in a `with`.

    Raises BasculeError: ALREADY_EXISTS if another sender holds the endpoint; INVALID_ARGUMENT; PERMISSION_DENIED;
    FAILED_PRECONDITION if sharded, and torch.distributed has no process group.
    """

    def __init__(self, endpoint: str, *, threads: int = 0, log: Callable[[str], None] | None = None,
                 expect_workers: int | Sequence[str] = 1, sharded: bool = False,
                 progress: Callable[[Progress], None] | None = None):
        url("endpoint", endpoint)
        whole("threads", threads)
        expected = expected_workers(expect_workers)
        rank, ranks = rank_and_ranks() if flag("sharded", sharded) else (0, 1)
        self._log, self._progress = Log(log), Log(None if progress is None else Stages(progress))
        self._core: _core.Sender | None = _core.Sender(endpoint, threads, self._log.number, self._progress.number, rank, ranks)
        if rank == 0:
            self._core.expect_workers(*expected)
        self._expected: deque[tuple[int, list[str]]] = deque()  # for the next call
        self._endpoint = endpoint
        self._turn = threading.RLock()
        self._depth = 0  # of nested calls in the thread whose turn it is: a signal handler may also call
        self._closing = False
        self._model: Followed | None = None
        self._sharded = sharded
        self._held: HeldBoxes | None = None  # instead of the model, if sharded
        self._rename: Callable[[str], str] | None = hf_names
        self._device = HOST
        self._pending: Any = None  # what a send in progress may still read
        self._forked = False
        lives(self)

    def register_model(self, model: torch.nn.Module | Mapping[str, Tensor] | Sequence[TensorSpec], *,
                       rename: Callable[[str], str] | None = hf_names, adapters: str | None = None,
                       timeout: float = 600) -> None:
        """Registers the tensors to send; call it once per sender. Reads no elements yet, and waits for no worker.

        model: a module, whose parameters and persistent buffers are sent; a mapping of names to tensors; or TensorSpecs
        for a trainer that gathers one tensor at a time (stream()). If parameters are replaced or moved, the next send
        uses the new ones. rename: maps a tensor's name in the model to the name that is sent; None keeps the names.
        adapters: for a model with adapters of PEFT: "merge" sends the base model under its own names, with the active
        adapter added to each weight while it is packed; the trainer's weights do not change (docs/guide/adapters.md).

        With sharded=True, the call waits up to `timeout` seconds for the same call of all other ranks. Of a DTensor, this
        rank sends its box; any other tensor must be equal on all ranks, and one of them sends it. FSDP2's modules are
        resharded if they show gathered parameters, here and in each send.

        Raises BasculeError: INVALID_ARGUMENT names the tensor and the problem; FAILED_PRECONDITION on a second call.
        BasculeTimeoutError names the ranks that did not come.
        """
        if adapters not in (None, "merge"):
            raise BasculeError(f'adapters: expected None or "merge", found {adapters!r:.200}', "INVALID_ARGUMENT")
        timeout = seconds("timeout", timeout)
        with self._call() as core:
            if self._sharded:
                self._register_shards(core, model, rename, adapters, timeout)
            elif adapters is not None:
                _refuse_single_copy(self._endpoint)
                name = active_adapter(model)
                followed = Followed(model, lambda: merged_of(model, name, rename), lambda named: check_sendable(model, named))
                self._register_followed(core, followed)
            elif is_module(model) or isinstance(model, Mapping):
                if is_module(model):
                    refuse_adapters(model, rename, 'give register_model(…, adapters="merge") to send merged weights to any '
                                    "engine, or call register_adapter() to send the adapter alone to engines that load "
                                    "adapters (docs/guide/adapters.md); for engines with the same PEFT model, rename=None")
                self._register_followed(core, Followed(model, lambda: plain(model, rename),
                                                       lambda named: check_sendable(model, named)))
            else:
                specs = _renamed_specs(model, rename)
                device = device_of(specs)
                self._register(None, lambda: core.register_specs(describe_specs(specs), device), device)
            self._rename = rename

    def register_adapter(self, model: torch.nn.Module, name: str = "default") -> None:
        """Registers one LoRA adapter of a model that PEFT has wrapped, instead of register_model().

        Each send then contains the adapter alone, under the names of PEFT's files. Its scale is folded into each B while it
        is packed, and PEFT's config travels as the description (Receiver.description); the trainer's tensors do not change.
        name: of the adapter in PEFT. docs/guide/adapters.md lists what each key of the config does.

        Raises BasculeError: INVALID_ARGUMENT names the key of the config, the module or the tensor that cannot be sent;
        FAILED_PRECONDITION on a second call.
        """
        text("name", name)
        with self._call():
            self._register_adapter(model, lambda: adapter_of(model, name))

    def _register_adapter(self, model: Any, find: Callable[[], Sent]) -> None:
        """register_adapter() for an adapter that `find` finds, also outside a model."""
        with self._call() as core:
            self._refuse_sharded("register_adapter")
            _refuse_single_copy(self._endpoint)
            self._register_followed(core, Followed(model, find, lambda named: None))
            self._rename = None

    def expect_workers(self, workers: int | Sequence[str]) -> None:
        """Changes the constructor's `expect_workers`, for example for a fleet that grows.

        Does not block: during another thread's call, it takes effect with the next call. Raises BasculeError
        (INVALID_ARGUMENT).
        """
        expected = expected_workers(workers)
        self._open()
        self._expected.append(expected)
        if self._turn.acquire(blocking=False):
            try:
                self._expect(self._open())
            finally:
                self._turn.release()

    def wait_for_workers(self, count: int, timeout: float = 60) -> list[str]:
        """Blocks until versions can be sent to `count` workers; returns their names in the order they joined.

        Raises BasculeTimeoutError after `timeout` seconds. It names the workers that joined, and the last refused
        worker with the reason.
        """
        count, timeout = whole("count", count), seconds("timeout", timeout)
        with self._call(until := _Deadline("wait_for_workers", timeout)) as core:
            return core.wait_for_workers(count, until.left())

    async def await_for_workers(self, count: int, timeout: float = 60) -> list[str]:
        """wait_for_workers() for asyncio: other tasks run while it waits. Raises as wait_for_workers() does."""
        count, timeout = whole("count", count), seconds("timeout", timeout)
        until = _Deadline("await_for_workers", timeout)
        return await self._await(lambda core: core.wait_for_workers(count, until.left()), until)

    def send(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
             worker_ids: Sequence[str] = (), *, step: int | None = None) -> _core.SendReport:
        """Packs and publishes a version. Blocks until every worker serves it or was evicted (see report.complete).

        weights: tensors to send instead of the registered ones, with the same names, types and shapes. worker_ids:
        names of workers, or of groups; empty: all. The other workers keep serving their version. step: required with
        sharded=True, and only then: the trainer's own count. All ranks must send the same one, and their registered
        tensors; of `worker_ids`, rank 0's count.

        Raises BasculeError if no worker flipped; it names the worker, version, tensor or rank. BasculeTimeoutError means
        that a slot, the packing, the delivery or another rank took too long.
        """
        with self._call() as core:
            return self._send(core, "send", weights, worker_ids, step)

    def send_async(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
                   worker_ids: Sequence[str] = (), *, step: int | None = None) -> None:
        """Like send(), but returns once the weights may be changed again; wait_async() returns the report."""
        with self._call() as core:
            workers = names("worker_ids", worker_ids)
            number = self._step_of("send_async", weights, step)
            if number is None:
                core.send_async(self._prepare(weights), workers)
            else:
                core.send_shards_async(number, workers)

    def wait_async(self, timeout: float | None = None) -> _core.SendReport:
        """Blocks until the pending send has settled, and returns its report.

        Raises BasculeTimeoutError after `timeout` seconds (None: never); the send then stays pending. Raises
        BasculeError: FAILED_PRECONDITION if no send is pending; or, like send(), the error that the send itself had.
        """
        until = None if timeout is None else _Deadline("wait_async", seconds("timeout", timeout))
        with self._call(until) as core:
            report = core.wait_async(until and until.left())
            self._pending = None
            return report

    def update_weights(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None) -> None:
        """Like send_async(), but needs no wait_async(): the next report has the outcome in `updates`.

        Blocks first until the previous version has settled.
        """
        with self._call() as core:
            self._refuse_sharded("update_weights")
            core.update_weights(self._prepare(weights))

    def stream(self, named: Iterable[tuple[str, Tensor]], worker_ids: Sequence[str] = ()) -> _core.SendReport:
        """Sends tensors one after the other; each may be freed before the next one is made. Blocks like send().

        named: yields every registered name once, in any order, with a tensor of its shape; floating-point tensors are
        cast to the type that is sent. Any exception, including one from `named`, aborts the version; workers keep
        serving the previous one.

        Raises BasculeError like send(); INVALID_ARGUMENT names a tensor that is unknown, missing, given twice, or of
        another shape or type.
        """
        with self._call() as core:
            self._refuse_sharded("stream")
            self._refuse_others("stream")
            loan = core.loan(names("worker_ids", worker_ids))
            try:
                self._fill(loan, named)
                wait_for_stream(self._device)
                return core.publish(loan)
            except BaseException:
                loan.drop()
                raise

    async def asend(self, weights: torch.nn.Module | Mapping[str, Tensor] | None = None,
                    worker_ids: Sequence[str] = (), *, step: int | None = None) -> _core.SendReport:
        """send() for asyncio: it runs in a separate thread, and other tasks continue.

        If the task is cancelled, a send that has begun continues, as after Ctrl-C. Raises as send() does.
        """
        return await self._await(lambda core: self._send(core, "asend", weights, worker_ids, step))

    @property
    def version(self) -> int:
        """The last version that this sender published; before its first, the highest number that earlier ones used.

        On a rank of a sharded trainer other than 0: the version in its last report, or 0.
        """
        return self._open().version()

    def close(self) -> None:
        """Gives up a pending send, says goodbye to all workers, and frees the slots. A second call does nothing.

        A call in progress, in another thread or interrupted by a signal handler, ends with CANCELLED or
        FAILED_PRECONDITION. close() blocks until that call has ended, but cannot interrupt the generator that stream()
        reads.
        """
        self._close(patience=None)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Sender:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await aclose(self)

    def __reduce__(self) -> Any:
        raise refuse_to_travel("Sender")

    def __repr__(self) -> str:
        return f"<Sender {self._endpoint}{'' if self._core is not None else ', closed'}>"

    # ----

    @contextmanager
    def _call(self, until: _Deadline | None = None) -> Iterator[_core.Sender]:
        """One call at a time. Raises BasculeTimeoutError if another thread's call takes longer than `until`."""
        with self._turn if until is None else until.turn(self._turn):
            self._depth += 1
            try:
                core = self._open()
                self._expect(core)
                yield core
            finally:
                self._depth -= 1
                if self._closing and self._depth == 0:
                    self._free()

    async def _await(self, call: Callable[[_core.Sender], _Result], until: _Deadline | None = None) -> _Result:
        """Makes a call in a separate thread. If the task is cancelled, the call's wait also ends."""
        import asyncio

        given_up, begun, over = threading.Event(), threading.Event(), threading.Event()

        def run() -> _Result:
            with self._call(until) as core:
                if given_up.is_set():
                    raise BasculeError("the task was cancelled before its call began", "CANCELLED")
                begun.set()
                try:
                    return call(core)
                finally:
                    over.set()

        running = asyncio.ensure_future(asyncio.to_thread(run))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            given_up.set()
            while not running.done():
                if begun.is_set() and not over.is_set() and (core := self._core) is not None:
                    core.let_go()
                await asyncio.wait([running], timeout=0.05)
            if not running.cancelled():
                running.exception()  # else asyncio logs it as never retrieved
            raise

    def _expect(self, core: _core.Sender) -> None:
        while self._expected:
            core.expect_workers(*self._expected.popleft())

    def _open(self) -> _core.Sender:
        if self._forked:
            raise refuse_in_child("Sender")
        if self._core is None or self._closing:
            raise BasculeError("this Sender is closed", "FAILED_PRECONDITION")
        return self._core

    def _close(self, patience: float | None) -> None:
        """patience: how many seconds to wait for another thread's call; None: for ever."""
        if self._forked:
            return
        self._closing = True
        since = time.monotonic()
        while not self._turn.acquire(timeout=0.05):
            if (core := self._core) is not None:
                core.let_go()
            if patience is not None and time.monotonic() - since > patience:
                return
        try:
            if self._depth == 0:
                self._free()
            elif self._core is not None:  # this thread is in a call, which frees it at its end
                self._core.let_go()
        finally:
            self._turn.release()

    def _free(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            core.close()
        self._model = self._held = self._pending = None

    def _register_followed(self, core: _core.Sender, followed: Followed) -> None:
        self._register(followed, lambda: core.register_tensors(followed.all, followed.sent.description),
                       followed.device)

    def _register(self, model: Followed | None, register: Callable[[], None], device: int) -> None:
        """Keeps the tensors alive before the core knows their addresses, even if a signal ends this call."""
        before, self._model = self._model, model
        try:
            register()
        except BasculeError:
            self._model = before
            raise
        self._device = device

    def _register_shards(self, core: _core.Sender, model: Any, rename: Callable[[str], str] | None, adapters: str | None,
                         timeout: float) -> None:
        if adapters is not None:
            raise BasculeError("adapters: a sharded sender sends tensors as they are; merge the adapter first, or send "
                               "gathered tensors with stream()", "INVALID_ARGUMENT")
        self._register_held(core, HeldModel(model, rename), timeout)

    def _register_held(self, core: _core.Sender, held: HeldBoxes, timeout: float) -> None:
        before, self._held = self._held, held
        try:
            core.register_shards(held.shards, "", timeout)
        except BasculeError:
            self._held = before
            raise

    def _register_boxes(self, look: Callable[[], Any], timeout: float) -> None:
        """register_model() of a sharded sender, for boxes that HeldBoxes(look) finds. Blocks and raises as it does."""
        with self._call() as core:
            self._register_held(core, HeldBoxes(look), timeout)

    def _send(self, core: _core.Sender, call: str, weights: Any, worker_ids: Sequence[str],
              step: int | None) -> _core.SendReport:
        workers = names("worker_ids", worker_ids)
        number = self._step_of(call, weights, step)
        return core.send(self._prepare(weights), workers) if number is None else core.send_shards(number, workers)

    def _step_of(self, call: str, weights: Any, step: int | None) -> int | None:
        """The step of a sharded send, whose shards' addresses it tells the core; None if the sender is not sharded."""
        if not self._sharded:
            if step is not None:
                raise BasculeError(f"{call}: step is for a sender with sharded=True; this one counts its versions itself",
                                   "INVALID_ARGUMENT")
            return None
        if step is None:
            raise BasculeError(f"{call}: this sender is sharded; give step=n, the trainer's own count, which must be the same "
                               "on all ranks", "INVALID_ARGUMENT")
        if weights is not None:
            raise BasculeError(f"{call}: a sharded sender sends the registered tensors; change these, and give no others",
                               "INVALID_ARGUMENT")
        number = whole("step", step, most=2**64 - 1)
        if self._held is not None:
            self._held.follow()
        return number

    def _refuse_sharded(self, call: str) -> None:
        if self._sharded:
            raise BasculeError(f"{call}: this sender is sharded; it sends what register_model() got, by send(step=n) or "
                               "send_async(step=n) on every rank. For anything else, make a sender without sharded=True on one "
                               "rank", "INVALID_ARGUMENT")

    def _prepare(self, weights: Any) -> _core.Tensors | None:
        """Describes the given weights. For None it instead tells the core where the registered tensors lie now."""
        core = self._open()
        if weights is None:
            if self._model is not None:
                self._model.follow(core.move, core.move_factors)
                if self._device != HOST:
                    core.set_stream(current_stream(self._device))
            return None
        self._refuse_others("send")
        named = tensors_of(weights, self._rename)
        if is_module(weights):
            check_sendable(weights, named)
        described = describe_all(named)
        self._pending = named
        return described

    def _refuse_others(self, call: str) -> None:
        """Raises BasculeError (INVALID_ARGUMENT) if the registered tensors are scaled or merged: others would not be."""
        if self._model is not None and (self._model.sent.scales or self._model.sent.products):
            raise BasculeError(f"{call}: this sender sends the registered model's adapter, and other tensors would be sent "
                               "without its scale; change the registered tensors, and call send() without tensors",
                               "INVALID_ARGUMENT")

    def _fill(self, loan: _core.Loan, named: Iterable[tuple[str, Any]]) -> None:
        places = loan.tensors()
        left = set(places)
        for name, tensor in named:
            travels = travels_as(name, self._rename)
            self._open()  # it may have been closed meanwhile
            if travels not in places:
                raise BasculeError(f"stream: tensor {travels} was not registered", "INVALID_ARGUMENT")
            if travels not in left:
                raise BasculeError(f"stream: tensor {travels} was given twice", "INVALID_ARGUMENT")
            copy_into(writable(places[travels]), tensor, travels)
            left.discard(travels)
        if left:
            raise BasculeError(f"stream: {len(left)} registered tensors did not come, such as {min(left)}",
                               "INVALID_ARGUMENT")

    def _abandon(self) -> None:
        self._forked = True
        self._turn = threading.RLock()  # a thread of the parent may have held it
        if self._core is not None:
            self._core.abandon()
