"""The engine's end."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._lifetime import lives, log_number, refuse_in_child, refuse_to_travel
from .errors import BasculeError
from .names import hf_names
from .tensors import describe, device_number, is_module, tensors_of
from .views import views

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_LOOK_EVERY = 0.05  # seconds between two looks for signals


@dataclass(frozen=True)
class Slice:
    """Elements [begin, end) of one dimension."""

    dim: int
    begin: int
    end: int


@dataclass(frozen=True)
class Part:
    """A box out of one of the sender's tensors; without slices the whole tensor."""

    tensor: str
    slices: Sequence[Slice] = ()


@dataclass(frozen=True)
class Target:
    """A tensor of the engine's own, contiguous, and what of the sender's tensors it is made of.

    Without parts: the sender's tensor of the same name. Several parts are joined along join_dim. Floating-point
    tensors are cast where the types differ.
    """

    name: str
    tensor: Any
    parts: Sequence[Part] = field(default=())
    join_dim: int = 0


class Receiver:
    """Joins an endpoint as one worker, prepares versions in the background, and flips to them when the engine asks.

    endpoint: as the sender's. worker: its name there. targets: the engine's own tensors, to be copied into: a module,
    whose parameters and persistent buffers are meant by their names (hf_names), or Targets; without them weights()
    are the slot itself, in place. apply: "commit", copied while commit() runs, or "background", into a second set of
    tensors before it; default: the endpoint's. partial: it is on purpose that no target takes some of the sender's
    tensors. group, rank, ranks: of an engine whose ranks flip together; rank 0 decides. device: "cpu", or the GPU that
    reads ("cuda:0"). stream: the torch.cuda.Stream that reads, or its number; default: the device's default stream.

    One thread at a time takes, finishes and commits; weights() and status() are any thread's. A receiver without a sender waits for one, and outlives it.

    Raises BasculeError: INVALID_ARGUMENT names the argument or the target.
    """

    def __init__(self, endpoint: str, *, worker: str, targets: torch.nn.Module | Sequence[Target] | None = None,
                 apply: str | None = None, partial: bool = False, group: str = "", rank: int = 0, ranks: int = 1,
                 device: Any = "cpu", stream: Any = None):
        if apply not in (None, "commit", "background"):
            raise BasculeError(f'apply: expected "commit" or "background", found {apply!r}', "INVALID_ARGUMENT")
        self._forked = False
        self._turn = threading.Lock()  # a flip, and what weights() says, are one
        self._endpoint, self._worker = endpoint, worker
        self._core: _core.Receiver | None = _core.Receiver(
            endpoint, worker, group, rank, ranks, device_number(device), getattr(stream, "cuda_stream", stream) or 0,
            log_number(None))
        self._targets: list[Target] = []  # alive as long as they may be written
        self._views: dict[tuple[int, int], Mapping[str, Any]] = {}
        self._flip: _core.Flip | None = None
        if targets is not None:
            self._targets = _targets_of(targets)
            self._core.register_model(_described(self._targets), apply or "", partial)
        self._core.join()
        lives(self)

    def take(self, version: int | None = None, timeout: float = 30) -> int | None:
        """Flips to a version and says which, but does not acknowledge it: the engine loads weights(), then finish().

        Waits up to `timeout` seconds for one; None: none came. version: in a follower of a group the one that rank 0
        took; elsewhere it, or a newer one. None then says that it is served already. Until finish() the slot stays as
        it is, and nothing else flips.

        Raises BasculeError where the sender refuses this worker, and where a flip left it poisoned; with `version`
        BasculeTimeoutError, where it did not come.
        """
        core = self._open()
        if not timeout >= 0:
            raise BasculeError(f"timeout: expected seconds, 0 or more, found {timeout}", "INVALID_ARGUMENT")
        if version is not None:
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
            ready.poll(1000 * min(left, _LOOK_EVERY))
        status = core.status()
        waits = getattr(status.error, "code", "") == "UNAVAILABLE"  # for a sender, which may come
        if status.error is not None and not waits and status.state in ("joining", "poisoned"):
            raise status.error
        return None

    async def atake(self, timeout: float = 30) -> int | None:
        """take(), while other tasks run."""
        import asyncio

        core = self._open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            awake = asyncio.Event()
            loop.add_reader(core.fileno(), awake.set)
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
                loop.remove_reader(core.fileno())

    def finish(self, error: BaseException | None = None) -> None:
        """Acknowledges what take() gave; the sender's send returns no earlier. Without a take() it does nothing.

        error: loading failed, and the engine's weights are of no version. It is poisoned until the next flip, and the
        sender brings it the newest version again.
        """
        self._open().finish(error)

    def commit(self, version: int | None = None) -> _core.Flip:
        """At a token boundary: flips if a version is ready, and acknowledges. Does not wait (but see slots=1).

        version: in a follower of a group, the one that rank 0's commit() returned; it waits for that. After a flip the
        tensors of the slot before may change: keep none of them.
        """
        core = self._open()
        with self._turn:
            flip = core.commit(version)
            self._flipped(flip)
            return flip

    def weights(self) -> Mapping[str, Tensor]:
        """The tensors of the version that is served, by name: of torch, where it was imported, else of numpy.

        They are read-only memory: a write ends the process. A slot's tensors are the same objects each time. Empty
        before the first version. A tensor that outlives close() keeps the receiver, and its place at the sender.
        """
        core = self._open()
        with self._turn:
            if self._flip is None:
                return {}
            slot = self._flip.slot
            if slot not in self._views:
                self._views[slot] = views(core.weights(self._flip))
            return self._views[slot]

    def wait_ready(self, timeout: float = 60, version: int = 0) -> None:
        """Blocks until a version (from `version` on) is served, or is ready for commit().

        Raises BasculeTimeoutError, which says how far it came; BasculeError says why the worker was refused.
        """
        self._open().wait_ready(version, timeout)

    def fileno(self) -> int:
        """An eventfd that is readable when take() or commit() may have work, for poll() and event loops."""
        return self._open().fileno()

    def status(self) -> _core.ReceiverStatus:
        """A snapshot, from any thread."""
        return self._open().status()

    def close(self) -> None:
        """Leaves the endpoint, as soon as no tensor of weights() is alive any more. A second call does nothing."""
        self._views.clear()
        self._core = self._flip = None
        self._targets = []

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
        with self._turn:
            return self._flipped(self._open().take(version))

    def _flipped(self, flip: _core.Flip) -> int | None:
        """Its version, where it is another one than before."""
        if flip.changed:
            self._flip = flip
            # Of a sender that is gone; a slot's number is not used again.
            self._views = {slot: each for slot, each in self._views.items() if slot[0] == flip.slot[0]}
        return flip.version if flip.changed and not flip.poisoned else None

    def _abandon(self) -> None:
        self._forked = True
        self._turn = threading.Lock()  # a thread that is not here may have held it
        if self._core is not None:
            self._core.abandon()


def _targets_of(targets: Any) -> list[Target]:
    if is_module(targets) or isinstance(targets, Mapping):
        return [Target(name, tensor) for name, tensor in tensors_of(targets, hf_names).items()]
    targets = list(targets)
    for target in targets:
        if not isinstance(target, Target):
            raise BasculeError(f"targets: expected a module, a mapping or Targets, found {type(target).__name__}",
                               "INVALID_ARGUMENT")
    return targets


def _described(targets: Sequence[Target]) -> _core.Targets:
    described = _core.Targets()
    for target in targets:
        dtype, shape, strides, address, device = describe(target.name, target.tensor)
        packed = 1
        for size, stride in zip(reversed(shape), reversed(strides)):
            if size > 1 and stride != packed:
                raise BasculeError(f"target {target.name} has the strides {strides}; expected a contiguous tensor",
                                   "INVALID_ARGUMENT")
            packed *= max(size, 1)
        parts = [(part.tensor, [(each.dim, each.begin, each.end) for each in part.slices]) for part in target.parts]
        described.add(target.name, dtype, shape, address, device, parts, target.join_dim)
    return described
