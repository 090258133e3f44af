"""Receiver: the engine's end."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any

from . import _core
from ._accepting import Accept, Accepting
from ._checks import each_a, seconds, text, url, whole
from ._torch import imported
from ._lifetime import Log, aclose, lives, refuse_in_child, refuse_to_travel
from .errors import BasculeError
from .followed import Glance, describe_each
from .modules import check_loadable
from .names import hf_names
from .tensors import describe, device_number, is_module, is_torch, tensors_of
from .views import views

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_logger = logging.getLogger("bascule")
_LOOK_EVERY = 0.05  # seconds between two looks for signals
_PATIENCE = 5.0  # seconds that close() waits for a call of `accept`
_MOST = 2**63 - 1  # of a version


@dataclass(frozen=True)
class Slice:
    """Elements begin to end (exclusive) of dimension `dim`."""

    dim: int
    begin: int
    end: int


@dataclass(frozen=True)
class Part:
    """A box cut out of one of the sender's tensors; without slices, the whole tensor."""

    tensor: str
    slices: Sequence[Slice] = ()


@dataclass(frozen=True)
class Target:
    """One of the engine's own tensors, which must be contiguous, and the parts of the sender's tensors that fill it.

    Without parts, the sender's tensor of the same name fills it. Several parts are joined along join_dim.
    Floating-point types are cast if they differ.
    """

    name: str
    tensor: Any
    parts: Sequence[Part] = field(default=())
    join_dim: int = 0


class Receiver:
    """Joins an endpoint as one worker, prepares versions in the background, and flips to them when the engine asks.

    endpoint: the sender's. worker: this worker's name at that endpoint. targets: the engine's own tensors, into which
    versions are copied: Targets, or a module or mapping, whose tensors are targets under their names (after hf_names).
    Without targets, weights() is the slot itself, read in place. apply: "commit" copies while commit() runs;
    "background" copies before commit(), into a second set of tensors; default: the endpoint's. partial: allows tensors
    of the sender that no target takes. group, rank, ranks: for an engine whose ranks flip together; rank 0 decides.
    device: "cpu", or the GPU that reads ("cuda:0"). stream: the torch.cuda.Stream that reads, or its number; default:
    the device's default stream. accept: called with each sender's tensors (a list of TensorSpec) and its description,
    before any byte moves. An exception refuses that sender for good, and its report has the text; otherwise return
    nothing. It is called in a separate thread. This worker joins no sender before it has returned, and close() waits for
    it for at most 5 seconds.

    The constructor does not block: a receiver may start before its sender, and outlives it. Only one thread at a time
    may call take(), finish() and commit(); any thread may call weights() and status(). Call close(), or use the
    receiver in a `with`.

    Raises BasculeError: INVALID_ARGUMENT names the argument or the target.
    """

    def __init__(self, endpoint: str, *, worker: str, targets: torch.nn.Module | Sequence[Target] | None = None,
                 apply: str | None = None, partial: bool = False, group: str = "", rank: int = 0, ranks: int = 1,
                 device: Any = "cpu", stream: Any = None, accept: Accept | None = None):
        if apply not in (None, "commit", "background"):
            raise BasculeError(f'apply: expected "commit" or "background", found {apply!r}', "INVALID_ARGUMENT")
        url("endpoint", endpoint)
        text("worker", worker)
        text("group", group)
        whole("rank", rank)
        whole("ranks", ranks, least=1)
        handle = getattr(stream, "cuda_stream", stream)
        handle = 0 if handle is None else whole("stream", handle, most=2**64 - 1)
        self._accepting = None if accept is None else Accepting(accept)
        self._forked = False
        self._poisoned = False  # as the last flip said; the descriptor is then readable until a version cures it
        self._wake: Callable[[], Any] | None = None  # of the task in atake()
        self._turn = threading.RLock()  # flip and weights() must agree; a signal handler may also call
        self._endpoint, self._worker, self._follows = endpoint, worker, rank > 0
        self._core: _core.Receiver | None = _core.Receiver(
            endpoint, worker, group, rank, ranks, device_number(device), handle, Log().number,
            self._accepting.number if self._accepting is not None else 0)
        self._shown: tuple[Any, dict[str, Any]] = (None, {})  # epoch, slot and version, and its tensors
        self._targets = _targets_of(targets) if targets is not None else None
        if self._targets is not None:
            self._core.register_model(self._targets.described(), apply or "", partial, self._targets.memory)
            in_url = "apply=background" in endpoint.partition("?")[2].split("&")
            if is_module(targets) and (apply == "background" or (apply is None and in_url)):
                _logger.warning("apply=background: the module given as targets holds only every second version; compute "
                                "with weights() after each commit(), as torch.func.functional_call() does, and give its "
                                'tensors as a mapping. Or use apply="commit", or bascule.hf.follow()')
            self._pending = select.poll()
            self._pending.register(self._core.fileno(), select.POLLIN)
        self._core.join()
        lives(self)

    def take(self, version: int | None = None, timeout: float = 30) -> int | None:
        """Flips to a version and returns its number, without acknowledging it: load weights(), then call finish().

        Blocks up to `timeout` seconds; returns None if no version came. version: in a follower of a group, the version
        that rank 0 took; any other worker takes this version or a newer one. If `version` is given, None means that it
        is served already. Until finish() the slot does not change, and nothing else flips.

        Raises BasculeError if the sender refuses this worker, or a flip left it poisoned; FAILED_PRECONDITION if a
        target was moved or replaced. Raises BasculeTimeoutError if a given `version` did not come.
        """
        core = self._open()
        timeout = seconds("timeout", timeout)
        if version is not None:
            version = whole("version", version, most=_MOST)
            core.wait_ready(version, timeout)
            return self._take(version)
        deadline = time.monotonic() + timeout
        ready = select.poll()
        ready.register(core.fileno(), select.POLLIN)
        while True:
            if (taken := self._take(None)) is not None:
                return taken
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if ready.poll(1000 * min(left, _LOOK_EVERY)) and self._poisoned:
                time.sleep(min(left, _LOOK_EVERY))
        status = core.status()
        waits = getattr(status.error, "code", "") == "UNAVAILABLE"  # for a sender, which may come
        if status.error is not None and not waits and status.state in ("joining", "poisoned"):
            raise status.error
        return None

    async def atake(self, timeout: float = 30) -> int | None:
        """take() for asyncio: other tasks run while it waits. Only one task at a time may call it.

        Raises BasculeError as take() does; FAILED_PRECONDITION if another task waits; CANCELLED if the receiver is
        closed while it waits.
        """
        import asyncio

        core = self._open()
        timeout = seconds("timeout", timeout)
        if self._wake is not None:
            raise BasculeError("another task waits in atake(); only one at a time may take and finish",
                               "FAILED_PRECONDITION")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        # A separate descriptor: while the loop uses it, the receiver may be closed and its descriptor's number reused.
        descriptor = os.dup(core.fileno())
        awake = asyncio.Event()
        self._wake = lambda: loop.is_closed() or loop.call_soon_threadsafe(awake.set)
        try:
            while True:
                awake.clear()
                loop.add_reader(descriptor, awake.set)
                try:
                    if (taken := self.take(timeout=0)) is not None:
                        return taken
                    left = deadline - loop.time()
                    if left <= 0:
                        return None
                    await asyncio.wait_for(awake.wait(), left)
                except asyncio.TimeoutError:
                    return None
                finally:
                    loop.remove_reader(descriptor)
                if self._core is None:
                    raise BasculeError("this receiver was closed", "CANCELLED")
        finally:
            self._wake = None
            os.close(descriptor)

    def finish(self, error: BaseException | None = None) -> None:
        """Acknowledges the version that take() returned; the trainer's send() returns no earlier. Does not block.

        error: why loading failed; the engine's weights then belong to no version, so the worker is poisoned until the
        next flip, and the sender brings it the newest version again. Without a take() the call does nothing.
        """
        self._open().finish(error)

    def commit(self, version: int | None = None) -> _core.Flip:
        """Call it at a token boundary: flips if a version is ready, and acknowledges it. Returns what it did.

        Does not block, except with slots=1 while the trainer writes, for at most twice `timeout` plus `loan_timeout` of
        this receiver's URL; after that the worker is poisoned. version: in a follower of a group, the version
        that rank 0's commit() returned; the call blocks until that version is prepared here, up to flip_timeout. Other
        workers ignore `version`. After a flip the previous slot's tensors may change: keep none of them.

        Raises BasculeError: FAILED_PRECONDITION if a target was moved or replaced.
        """
        core = self._open()
        if version is not None:
            version = whole("version", version, most=_MOST)
        with self._turn:
            flip = core.commit(version) if self._may_flip(core, version) else core.unchanged()
            self._mark(flip)
            return flip

    def weights(self) -> dict[str, Tensor]:
        """The served version's tensors by name: torch tensors if torch was imported, else numpy arrays. Does not block.

        The tensors are read-only memory: a write ends the process. The same version returns the same objects; each version
        has new ones. Each call returns a separate dict, which is empty before the first version.
        """
        core = self._open()
        with self._turn:
            flip = core.flip()
            if flip is None:
                return {}
            served = flip.slot, flip.version
            if self._shown[0] != served:  # the last version's tensors may have been moved, resized or transposed in place
                self._shown = served, views(core.weights(flip))
            return dict(self._shown[1])

    def wait_ready(self, timeout: float = 60, version: int = 0) -> None:
        """Blocks until a version is served, or is ready for commit().

        If `version` is given, waits for that version or a newer one. After `timeout` seconds, raises a
        BasculeTimeoutError that says how far the worker got. If the sender refused this worker, raises a BasculeError
        with the reason.
        """
        version, timeout = whole("version", version, most=_MOST), seconds("timeout", timeout)
        self._open().wait_ready(version, timeout)

    @property
    def description(self) -> str:
        """What the served version's sender registered with its tensors: for an adapter, PEFT's adapter_config.json as text.

        Empty before the first version, and if the sender registered a model. Does not block.
        """
        return self._open().description()

    def fileno(self) -> int:
        """The receiver's eventfd, for poll() and event loops: readable while take() or commit() has work.

        It stays readable while the worker is poisoned: pause between two looks then.
        """
        return self._open().fileno()

    def status(self) -> _core.ReceiverStatus:
        """A snapshot of the receiver. Any thread may call it; it does not block."""
        return self._open().status()

    def close(self) -> None:
        """Leaves the endpoint. If weights() returned tensors of a second set, this happens once none of them is alive.

        A second call does nothing. Tensors of weights() can still be read, but a trainer may write another version
        there. A waiting call in another thread or task ends with CANCELLED or FAILED_PRECONDITION. Waits for a call of
        `accept` for at most 5 seconds; a log line says if it has not returned by then.
        """
        self._close(_PATIENCE)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Receiver:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await aclose(self)

    def __reduce__(self) -> Any:
        raise refuse_to_travel("Receiver")

    def __repr__(self) -> str:
        return f"<Receiver {self._worker} at {self._endpoint}{'' if self._core is not None else ', closed'}>"

    # ----

    def _open(self) -> _core.Receiver:
        if self._forked:
            raise refuse_in_child("Receiver")
        if self._core is None:
            raise BasculeError("this Receiver is closed", "FAILED_PRECONDITION")
        return self._core

    def _take(self, version: int | None) -> int | None:
        """The new version's number, or None if nothing changed or the worker is poisoned."""
        with self._turn:
            core = self._open()
            flip = core.take(version) if self._may_flip(core, version) else core.unchanged()
            self._mark(flip)
            self._poisoned = flip.poisoned
            return flip.version if flip.changed and not flip.poisoned else None

    def _mark(self, flip: _core.Flip) -> None:
        """Tells torch that a flip wrote the targets, so that a backward pass over it raises an error."""
        if self._targets is not None and (flip.changed or flip.poisoned):
            self._targets.mark()

    def _may_flip(self, core: _core.Receiver, version: int | None) -> bool:
        """Whether a flip may follow. The core writes to the addresses that the targets had at registration.

        So targets are checked before each flip, and the core is not asked for one that was not checked: a version may
        become ready at any moment. A follower flips to each newer `version`, and its descriptor does not show it.
        """
        if self._targets is None:
            return True
        flips = self._follows and version is not None and version > core.unchanged().version
        if not flips and not self._pending.poll(0):
            return False
        self._targets.check()
        return True

    def _close(self, patience: float | None) -> None:
        core, self._core = self._core, None
        self._shown = (None, {})
        if core is not None:
            if self._accepting is not None and not self._accepting.close(_PATIENCE if patience is None else patience):
                _logger.warning("receiver %s leaves %s although accept() has not returned within %.0f s; that call goes on "
                                "in its thread, and its answer is ignored", self._worker, self._endpoint, _PATIENCE)
            core.close()
        if (wake := self._wake) is not None:
            wake()

    def _abandon(self) -> None:
        self._forked, self._wake = True, None
        self._turn = threading.RLock()  # a thread of the parent may have held it
        if self._core is not None:
            self._core.abandon()


def _targets_of(targets: Any) -> Targets:
    if is_module(targets) or isinstance(targets, Mapping):
        check_loadable(targets)
        return Targets(targets, [Target(name, tensor) for name, tensor in tensors_of(targets, hf_names).items()])
    targets = list(targets) if isinstance(targets, Iterable) else [targets]
    for target in targets:
        if not isinstance(target, Target):
            raise BasculeError(f"targets: expected a module, a mapping or Targets, found {type(target).__name__}",
                               "INVALID_ARGUMENT")
    return Targets(None, targets)


class Targets:
    """Keeps the targets' memory alive while it may be written, and checks that the targets still lie there."""

    def __init__(self, model: Any, targets: Sequence[Target]):
        self._model, self._targets = model, targets
        self._names = [target.name for target in targets]
        self._tensors = [target.tensor for target in targets]
        self._specs = describe_each(self._names, self._tensors)
        self.memory = [_hold(target) for target in targets]
        self._glance = Glance(self._tensors)
        self._torch = imported()
        self._written = [tensor for tensor in self._tensors if is_torch(tensor) and not tensor.is_inference()]

    def check(self) -> None:
        """Raises BasculeError (FAILED_PRECONDITION), which names a target that was moved or replaced."""
        tensors = self._tensors
        if self._model is not None:
            now = tensors_of(self._model, hf_names)
            tensors = [now.get(name) for name in self._names]
        same = all(map(is_, tensors, self._tensors))
        if same and self._glance.same(tensors):
            return
        for name, tensor, before, spec in zip(self._names, tensors, self._tensors, self._specs):
            if tensor is not before or describe(name, tensor) != spec:
                raise BasculeError(f"target {name} was moved, replaced or changed since this receiver was made, and "
                                   "would not get the version; write into it in place, or make another receiver",
                                   "FAILED_PRECONDITION")

    def mark(self) -> None:
        """Counts a write to each torch tensor among the targets."""
        for tensor in self._written:
            self._torch.autograd.graph.increment_version(tensor)

    def described(self) -> _core.Targets:
        """The targets for the core. Raises BasculeError (INVALID_ARGUMENT), which names one that is not contiguous."""
        described = _core.Targets()
        for target, (dtype, shape, strides, address, device) in zip(self._targets, self._specs):
            _check_contiguous(target.name, shape, strides)
            what = f"target {text('the name of a target', target.name)}"
            parts = [_boxed(what, part) for part in each_a(f"{what}: parts", Part, target.parts)]
            join_dim = whole(f"{what}: join_dim", target.join_dim)
            described.add(target.name, dtype, shape, address, device, parts, join_dim)
        return described


def _boxed(what: str, part: Part) -> tuple[str, list[tuple[int, int, int]]]:
    """A part for the core. Raises BasculeError (INVALID_ARGUMENT), which begins with `what`."""
    slices = each_a(f"{what}: slices", Slice, part.slices)
    return text(f"{what}: the tensor of a part", part.tensor), [
        (whole(f"{what}: dim", each.dim), whole(f"{what}: begin", each.begin, most=_MOST),
         whole(f"{what}: end", each.end, most=_MOST)) for each in slices]


def _check_contiguous(name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    if 0 in shape:  # numpy's strides are then all 0
        return
    packed = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size > 1 and stride != packed:
            raise BasculeError(f"target {name} has the strides {strides}; expected a contiguous tensor",
                               "INVALID_ARGUMENT")
        packed *= max(size, 1)


def _hold(target: Target) -> Any:
    """Returns an object that keeps the target's memory alive, whatever happens to its tensor."""
    if is_torch(target.tensor):
        return target.tensor.detach()
    if type(target.tensor).__module__ != "numpy":
        raise BasculeError(f"target {target.name}: expected a torch tensor or a numpy array, found "
                           f"{type(target.tensor).__name__}", "INVALID_ARGUMENT")
    if not getattr(target.tensor, "flags", None) or not target.tensor.flags.writeable:
        raise BasculeError(f"target {target.name} must not be written: its array is read-only", "INVALID_ARGUMENT")
    return target.tensor[...]
