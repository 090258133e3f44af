"""The weight-transfer backend "bascule" of vLLM, in each of its workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import (WeightTransferEngine, WeightTransferInitInfo,
                                                   WeightTransferUpdateInfo)

from ..errors import BasculeError
from .place import place_of
from .rank import Rank
from .scatter import scatter


@dataclass
class BasculeInitInfo(WeightTransferInitInfo):
    """endpoint: default $BASCULE_ENDPOINT. worker: the engine's name at the sender; default $BASCULE_WORKER.
    apply: how versions get into the model, as in scatter.py; default $BASCULE_APPLY."""

    endpoint: str | None = None
    worker: str | None = None
    apply: str | None = None


@dataclass
class BasculeUpdateInfo(WeightTransferUpdateInfo):
    """version: it, or a newer one; None: the newest. timeout: seconds to wait for it."""

    version: int | None = None
    timeout: float = 30


class BasculeWeightTransferEngine(WeightTransferEngine[BasculeInitInfo, BasculeUpdateInfo]):
    """A version is loaded, and acknowledged, within one update_weights; start and finish have nothing to do.

    Where BASCULE_ENDPOINT is set the engine joins by itself (follow.py), else by init_weight_transfer_engine.
    """

    init_info_cls = BasculeInitInfo
    update_info_cls = BasculeUpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any):
        super().__init__(config, vllm_config, device, model)
        self.rank: Rank | None = None

    def init_transfer_engine(self, init_info: BasculeInitInfo) -> None:
        """Joins. Joined already at the same place: nothing; at another: it leaves that one."""
        place = place_of(self.vllm_config, self.parallel_config.rank, self.device, init_info.endpoint, init_info.worker)
        if self.rank is not None and self.rank.place == place and init_info.apply is None:
            return
        self.shutdown()
        with set_current_vllm_config(self.vllm_config):  # vLLM 0.26 does not, here and below
            self.rank = Rank(place, scatter(init_info.apply, place, self.model, self.vllm_config))

    def start_weight_update(self) -> None:
        if self.rank is None:
            if not os.environ.get("BASCULE_ENDPOINT"):
                raise BasculeError("this engine joined no endpoint: set BASCULE_ENDPOINT, or call "
                                   "init_weight_transfer_engine first", "FAILED_PRECONDITION")
            self.init_transfer_engine(BasculeInitInfo())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # Unlike the base class it does not wait for an accelerator, which may not be there.
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: BasculeUpdateInfo) -> None:
        with set_current_vllm_config(self.vllm_config):
            self.rank.update(self.model, self.model_config, update_info.version, update_info.timeout)

    def finish_weight_update(self) -> None:
        pass

    def shutdown(self) -> None:
        rank, self.rank = self.rank, None
        if rank is not None:
            rank.close()

    def trainer_send_weights(self, *arguments: Any, **named: Any) -> None:  # abstract in vLLM 0.26
        raise BasculeError("a trainer sends by bascule.Sender", "UNIMPLEMENTED")
