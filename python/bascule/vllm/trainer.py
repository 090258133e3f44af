"""The backend "bascule" for vLLM's trainer API: code written for vLLM's own backends sends through Bascule instead.

    from bascule.vllm.trainer import BasculeTrainerInitInfo
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    engine = WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint="shm:///run/user/1000/grpo", rank=rank),
                                                       client=client, source=source)
    engine.send_weights()  # on every rank of the trainer

The engines run with --weight-transfer-config '{"backend":"bascule"}'. Importing this module registers the backend.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

from .._checks import seconds, url, whole
from .._streamed import check_served, slots_device, stream_and_update
from ..errors import BasculeError
from ..sender import Sender
from ..tensors import TensorSpec
from .trainer_shards import pieces_of

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class BasculeTrainerInitInfo(TrainerInitInfo):
    """The fields of trainer_init()'s init_info, beside vLLM's `rank`.

    endpoint: a URL; default $BASCULE_ENDPOINT. workers: how many ranks of engines must serve each version. timeout: how
    many seconds they may take to join, and to find a version that was published. sharded: each rank sends what the
    source's iter_local() yields, without a gather (docs/guide/sharded.md); needs vLLM 0.33, and torch.distributed's
    default group with the same ranks.
    """

    backend: ClassVar[str] = "bascule"

    endpoint: str | None = None
    workers: int = 1
    timeout: float = 180
    sharded: bool = False


class BasculeTrainerEngine(TrainerWeightTransferEngine[BasculeTrainerInitInfo]):
    """Rank 0 has the sender, and streams the source's whole tensors; the other ranks take part in the source's gathers. If
    the trainer is sharded, each rank has a sender for its pieces.

    An engine that follows the endpoint by itself (BASCULE_ENDPOINT) may have loaded a version before the client's
    update_weights() reaches it.
    """

    init_info_cls = BasculeTrainerInitInfo

    def __init__(self, *, client: Any, source: Any, rank: int = 0):
        super().__init__(client=client, source=source, is_sender=rank == 0)
        self.rank = rank
        self.sender: Sender | None = None  # on rank 0, or on all ranks
        self._sharded = False
        self._steps = 0  # sent by a sharded trainer
        self._timeout = 0.0
        self._count = 0  # of the source's parameters

    @classmethod
    def trainer_init(cls, init_info: BasculeTrainerInitInfo, *, client: Any, source: Any = None) -> Self:
        """Takes the endpoint; on rank 0, also waits until the engines have joined it. Other ranks do nothing, unless the
        trainer is sharded: then all wait for each other.

        Raises BasculeError: INVALID_ARGUMENT names a field, or says that there is no source; UNIMPLEMENTED if rank 0
        does not own all parameters of the source, or it has no pieces; and what Sender() raises. BasculeTimeoutError
        names the workers that have joined, or the ranks that did not come.
        """
        if source is None:
            raise BasculeError("source: expected a WeightSource with the trainer's parameters, found None", "INVALID_ARGUMENT")
        engine = cls(client=client, source=source, rank=whole("rank", init_info.rank))
        if engine.is_sender or init_info.sharded:
            engine._open(init_info)
        return engine

    def send_weights(self) -> None:
        """Sends a version, and returns once all workers serve it. Call it on every rank.

        If it fails, rank 0 still finishes its pass over the source, so that no other rank waits in a gather.

        Raises BasculeError, which names the workers that do not serve the version and why; or what the source or the
        client raised.
        """
        if self._sharded:
            return self._send_pieces()
        tensors = _whole_tensors(self.source)
        try:
            if self.is_sender:
                self._send(tensors)
        finally:
            for _ in tensors:  # also on the other ranks
                pass

    def shutdown(self) -> None:
        """Closes the sender. A second call does nothing."""
        if self.sender is not None:
            self.sender.close()

    # ----

    def _open(self, init_info: BasculeTrainerInitInfo) -> None:
        endpoint = init_info.endpoint or os.environ.get("BASCULE_ENDPOINT", "")
        if not endpoint:
            raise BasculeError('endpoint: expected a URL such as "shm:///run/user/1000/grpo", found none, and '
                               "BASCULE_ENDPOINT is not set", "INVALID_ARGUMENT")
        url("endpoint", endpoint)
        workers, self._timeout = whole("workers", init_info.workers, least=1), seconds("timeout", init_info.timeout)
        self._sharded = init_info.sharded
        self.sender = Sender(endpoint, expect_workers=workers, sharded=self._sharded)
        try:
            if self._sharded:
                self.sender._register_boxes(pieces_of(self.source, self.rank), self._timeout)
            else:
                specs = _specs(self.source, slots_device(endpoint))
                self._count = len(specs)
                self.sender.register_model(specs)
            if self.is_sender:
                self.client.init_weight_transfer_engine({"endpoint": endpoint})
                self.sender.wait_for_workers(workers, self._timeout)
        except BaseException:
            self.sender.close()
            raise

    def _send(self, tensors: Iterator[tuple[str, Any]]) -> None:
        if self.sender is None:
            raise BasculeError("trainer_init() made no sender", "FAILED_PRECONDITION")
        stream_and_update(self.sender, self._count, tensors, self._update)
        self.client.finish_weight_update()

    def _send_pieces(self) -> None:
        assert self.sender is not None
        version, self._steps = self.sender.version + 1, self._steps + 1
        self.sender.send_async(step=self._steps)
        try:
            if self.is_sender:
                self._update(version)
        finally:  # all ranks wait for the report
            report = self.sender.wait_async()
        check_served(report)
        if self.is_sender:
            self.client.finish_weight_update()

    def _update(self, version: int) -> None:
        """Tells the engines to load this version or a newer one, which is about to be published."""
        self.client.start_weight_update()
        self.client.update_weights({"version": version, "timeout": self._timeout})


def _specs(source: Any, device: str) -> list[TensorSpec]:
    """What the source declares: a property in vLLM 0.33, a method before.

    Raises BasculeError (UNIMPLEMENTED) if the source has no whole tensors; or names the first parameter that rank 0 does not own.
    """
    if hasattr(source, "implements_iter_full") and not source.implements_iter_full():
        raise BasculeError(f"{type(source).__name__} does not implement iter_full(), from which rank 0 streams whole tensors; "
                           "with sharded=True, each rank sends what iter_local() yields", "UNIMPLEMENTED")
    declared = source.metadata if not callable(source.metadata) else source.metadata()
    if hasattr(source, "owned_names"):
        owned = source.owned_names(0)
    else:
        owned = source.held_names() if hasattr(source, "held_names") else None
    if owned is not None and (missing := [each.name for each in declared if each.name not in set(owned)]):
        raise BasculeError(f"rank 0 does not own {len(missing)} of the source's {len(declared)} parameters, such as "
                           f"{missing[0]}; give a source whose rank 0 yields every parameter whole", "UNIMPLEMENTED")
    return [TensorSpec(each.name, each.dtype, list(each.shape), device) for each in declared]


def _whole_tensors(source: Any) -> Iterator[tuple[str, Any]]:
    """A pass over the source's whole tensors: iter_full() in vLLM 0.33, iter() before."""
    return iter(source.iter_full() if hasattr(source, "iter_full") else source)


if BasculeTrainerInitInfo.backend not in WeightTransferTrainerFactory._registry:
    WeightTransferTrainerFactory.register_engine(BasculeTrainerInitInfo.backend, BasculeTrainerEngine)
