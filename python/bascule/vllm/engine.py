"""The backend "bascule" for vLLM's weight transfer, in each vLLM worker."""

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
    """The fields of init_info.

    endpoint: default $BASCULE_ENDPOINT. worker: the engine's name at the sender; default $BASCULE_WORKER. apply:
    "auto", "load" or "scatter", how versions get into the model (scatter.py); default $BASCULE_APPLY.
    """

    endpoint: str | None = None
    worker: str | None = None
    apply: str | None = None


@dataclass
class BasculeUpdateInfo(WeightTransferUpdateInfo):
    """The fields of update_info.

    version: load this version or a newer one; None: the newest. timeout: seconds to wait for it.
    """

    version: int | None = None
    timeout: float = 30


class BasculeWeightTransferEngine(WeightTransferEngine[BasculeInitInfo, BasculeUpdateInfo]):
    """Loads and acknowledges a version within one update_weights().

    If BASCULE_ENDPOINT is set, the engine joins automatically (follow.py), else by init_weight_transfer_engine.
    """

    init_info_cls = BasculeInitInfo
    update_info_cls = BasculeUpdateInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any):
        super().__init__(config, vllm_config, device, model)
        self.rank: Rank | None = None

    def parse_init_info(self, init_dict: dict[str, Any]) -> BasculeInitInfo:
        """Raises ValueError if fields are unknown, and names the trainers whose NCCL fields are not for this backend."""
        if "master_address" in init_dict:
            raise ValueError("the backend bascule got the fields of an NCCL group, from a trainer that sends over NCCL by "
                             "itself. Before TRL's AsyncGRPOTrainer and AsyncDistillationTrainer are made, call "
                             "bascule.trl.install(); for another such trainer, start vLLM with "
                             "--weight-transfer-config '{\"backend\":\"nccl\"}'")
        return super().parse_init_info(init_dict)

    def init_transfer_engine(self, init_info: BasculeInitInfo) -> None:
        """Joins an endpoint, and leaves the one joined before; if they are the same, does nothing. Does not block.

        Raises BasculeError: INVALID_ARGUMENT for a missing endpoint or an unknown `apply`.
        """
        place = place_of(self.vllm_config, self.parallel_config.rank, self.device, init_info.endpoint, init_info.worker)
        if self.rank is not None and self.rank.place == place and init_info.apply is None:
            return
        self.shutdown()
        with set_current_vllm_config(self.vllm_config):  # vLLM 0.26 does not set it, here and below
            self.rank = Rank(place, scatter(init_info.apply, place, self.model, self.vllm_config))

    def start_weight_update(self) -> None:
        """Joins $BASCULE_ENDPOINT unless an endpoint was joined. Raises BasculeError (FAILED_PRECONDITION) if unset."""
        if self.rank is None:
            if not os.environ.get("BASCULE_ENDPOINT"):
                raise BasculeError("this engine joined no endpoint: set BASCULE_ENDPOINT, or call "
                                   "init_weight_transfer_engine first", "FAILED_PRECONDITION")
            self.init_transfer_engine(BasculeInitInfo())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Parses update_info, then receive_weights(). Does not wait for an accelerator, which may not exist."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: BasculeUpdateInfo) -> None:
        """Loads a version, as Rank.update() does: blocks up to `timeout` seconds, and raises what loading raised."""
        with set_current_vllm_config(self.vllm_config):
            self.rank.update(self.model, self.model_config, update_info.version, update_info.timeout)

    def finish_weight_update(self) -> None:
        """Does nothing: update_weights() has acknowledged the version."""

    def shutdown(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        rank, self.rank = self.rank, None
        if rank is not None:
            rank.close()

    def trainer_send_weights(self, *arguments: Any, **named: Any) -> None:  # abstract in vLLM 0.26
        """Raises BasculeError (UNIMPLEMENTED): a trainer uses bascule.Sender."""
        raise BasculeError("a trainer sends with bascule.Sender", "UNIMPLEMENTED")
