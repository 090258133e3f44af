"""The checkpoint engine "bascule" of verl, which brings the actor's weights to the rollouts.

    actor_rollout_ref.rollout.checkpoint_engine.backend=bascule
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=bascule.verl

Importing this module registers it. verl makes one in each worker of the actor and of the rollouts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from . import _core, ray
from ._checks import flag, seconds
from ._streamed import check_served, slots_device
from ._verl_shards import offer_shards, shards_of
from .errors import BasculeError, BasculeTimeoutError
from .receiver import Receiver
from .sender import Sender
from .tensors import TensorSpec

_LOOK_EVERY = 0.5  # seconds between two looks whether the actor is still there
_GONE_AFTER = 5  # seconds for which a rollout finds no sender


@dataclass(frozen=True)
class Member:
    """What a worker tells verl's manager before an update."""

    worker: str
    sender: ray.Entry | None = None  # of the actor's rank 0
    version: int = 0  # that its next send has
    opened: int = 0  # how many senders it has opened so far


class BasculeCheckpointEngine(CheckpointEngine):
    """One worker's end. verl's manager calls prepare(), build_topology(), init_process_group(), send_weights() in the actor
    and receive_weights() in the rollouts, then finalize().

    bucket_size, is_master: verl's own. There are no buckets, since a slot has the whole model. What follows comes from
    checkpoint_engine.engine_kwargs.bascule. endpoint: a URL; default: a private folder of the actor's host, with slots in
    host memory. timeout: how many seconds the rollouts may take to join and to load, and the actor to send. sharded: each
    rank of the actor sends its own shards, without a gather; all must be on one host.

    If an update fails, both ends leave the endpoint, and the next one begins anew.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, endpoint: str = "", timeout: float = 600,
                 sharded: bool = False):
        self._is_master, self._sharded, self._timeout = is_master, flag("sharded", sharded), seconds("timeout", timeout)
        self._worker = ray._own_name()
        self._endpoint = endpoint
        self._sender: Sender | None = None  # in the actor's rank 0; if sharded, in all its ranks
        self._receiver: Receiver | None = None  # while a rollout waits for a version and loads it
        self._opened = 0  # which of the master's senders this one belongs to
        self._registered = False
        self._steps = 0  # sent by this sender, if sharded
        self._rollouts: list[str] = []
        self._device = "cpu"  # where a rollout reads
        self._version = 0  # that this update brings, or a newer one
        if sharded:
            offer_shards()

    def prepare(self) -> Member:
        """In the actor's rank 0, takes the endpoint unless it has it. Raises BasculeError as Sender() does."""
        self._leave(self._receiver)  # of an update that failed
        if not self._is_master:
            return Member(self._worker)
        if self._sender is None:
            self._endpoint = self._endpoint or self._private_endpoint()
            self._open(self._opened + 1)
        return Member(self._worker, ray._entry_of(self._endpoint), self._sender.version + 1, self._opened)

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int,
                       metadata: list[Member]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Tells all workers where the sender is, and the actor who the rollouts are."""
        actor, rollouts = metadata[:actor_wg_world_size], [each.worker for each in metadata[actor_wg_world_size:]]
        master = next((each for each in actor if each.sender is not None), None)
        if master is None:
            raise BasculeError("expected one worker of the actor to be verl's master, found none", "INVALID_ARGUMENT")
        return ({"master": [master] * actor_wg_world_size, "rollouts": [rollouts] * actor_wg_world_size},
                {"master": [master] * rollout_world_size})

    def init_process_group(self, master: Member, rollouts: list[str] | None = None) -> None:
        """Does not block. Raises BasculeError (FAILED_PRECONDITION) if the sender cannot be reached from this host."""
        self._version = master.version
        if rollouts is None:
            self._endpoint = ray._reachable("the actor", master.sender, "place the rollouts there")
            self._device = ray._device_near(master.sender.gpu) if _core.keeps_slots_on_gpu(self._endpoint) else "cpu"
            return
        self._rollouts = rollouts
        if self._sharded and not self._is_master and (self._sender is None or self._opened != master.opened):
            self._leave(self._sender)
            self._endpoint = master.sender.endpoint
            self._open(master.opened)

    async def send_weights(self, weights: Iterable[tuple[str, Any]], global_steps: int | None = None) -> None:
        """Sends a version, and returns once all rollouts have read it. Each rank of the actor iterates `weights`, whose
        gathers need all of them, even if the send fails; if sharded, none does.

        Blocks the event loop: the gathers must run in its thread. Raises BasculeError, which names the rollouts that did not
        get the version and why; or what `weights` raised.
        """
        tensors = iter(()) if self._sharded else iter(weights)
        try:
            with torch.no_grad():
                if self._sharded:
                    self._send_shards(weights)
                elif self._is_master:
                    self._stream(tensors)
        except BaseException:
            self._leave(self._sender)  # so that the rollouts do not wait
            raise
        finally:
            for _ in tensors:
                pass

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yields the tensors of a version, which lie in the slot and must not be written. The actor's send ends once the
        last one was asked for more.

        Raises BasculeError (UNAVAILABLE) if the actor has gone or its send failed. BasculeTimeoutError: no version came.
        """
        with Receiver(self._endpoint, worker=self._worker, device=self._device) as receiver:
            self._receiver = receiver
            await self._take(receiver)
            try:
                for named in receiver.weights().items():
                    yield named
            except BaseException:
                if self._receiver is receiver:
                    receiver.finish(BasculeError("the rollout stopped reading the weights, since loading them failed there",
                                                 "ABORTED"))
                raise
            receiver.finish()
            self._receiver = None

    def finalize(self) -> None:
        """Does nothing: a rollout left when it had read all tensors, and the actor keeps its slots for the next update."""

    # ----

    def _private_endpoint(self) -> str:
        limit = f"{self._timeout:.0f}s"
        return f"{ray._endpoint_of(f'verl-{self._worker}', None, on_host=True)}?timeout={limit}&load_timeout={limit}"

    def _open(self, number: int) -> None:
        self._sender = Sender(self._endpoint, sharded=self._sharded)
        self._opened, self._registered, self._steps = number, False, 0

    def _leave(self, end: Sender | Receiver | None) -> None:
        if end is not None:
            if end is self._sender:
                self._sender = None
            else:
                self._receiver = None
            end.close()

    def _stream(self, tensors: Iterator[tuple[str, Any]]) -> None:
        """The first pass says which tensors there are, so they are copied to host memory; later ones go into the slot."""
        if not self._registered:
            copies = [(name, tensor.to("cpu", copy=True)) for name, tensor in tensors]
            device = slots_device(self._endpoint)
            self._sender.register_model([TensorSpec(name, each.dtype, list(each.shape), device) for name, each in copies],
                                        rename=None)
            self._registered, tensors = True, iter(copies)
        self._wait_for_rollouts()
        check_served(self._sender.stream(tensors, self._rollouts))

    def _send_shards(self, weights: Any) -> None:
        if not self._registered:
            self._sender._register_boxes(shards_of(weights), self._timeout)
            self._registered = True
        if self._is_master:
            self._wait_for_rollouts()
        self._steps += 1
        check_served(self._sender.send(worker_ids=self._rollouts, step=self._steps))

    def _wait_for_rollouts(self) -> None:
        until, joined = time.monotonic() + self._timeout, []
        while missing := set(self._rollouts) - set(joined):  # another worker may be there too
            try:
                joined = self._sender.wait_for_workers(len(joined) + len(missing), max(until - time.monotonic(), 0))
            except BasculeTimeoutError as error:
                missing = set(self._rollouts) - set(self._sender.wait_for_workers(0))
                raise BasculeTimeoutError(f"{error}; these rollouts did not join within {self._timeout:g} seconds: "
                                          f"{', '.join(sorted(missing))}", error.code) from None

    async def _take(self, receiver: Receiver) -> None:
        until, seen = time.monotonic() + self._timeout, time.monotonic()
        while True:
            taken = await receiver.atake(_LOOK_EVERY)
            if taken is not None and taken >= self._version:
                return
            if taken is not None:  # of an earlier update: a sender brings its newest version to who joins
                receiver.finish()
            error, now = receiver.status().error, time.monotonic()
            seen = seen if getattr(error, "code", "") == "UNAVAILABLE" else now
            if now - seen > _GONE_AFTER:
                raise BasculeError(f"version {self._version} did not come: the actor has gone, or its send failed: {error}",
                                   "UNAVAILABLE")
            if now > until:
                raise BasculeTimeoutError(f"version {self._version} did not come from {self._endpoint} within {self._timeout} "
                                          "seconds", "DEADLINE_EXCEEDED")


CheckpointEngineRegistry.register("bascule")(BasculeCheckpointEngine)
