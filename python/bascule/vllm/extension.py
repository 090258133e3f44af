"""--worker-extension-cls bascule.vllm.WorkerExtension, for vLLM versions and launchers without backends."""

from __future__ import annotations

from typing import Any


class WorkerExtension:
    """Methods that every vLLM worker gets, for collective_rpc(); `self` is vLLM's worker.

        llm.collective_rpc("bascule_join", kwargs={"endpoint": "shm:///run/user/1000/grpo"})
        llm.collective_rpc("bascule_take")     # the version of each rank, or None
        llm.reset_prefix_cache()
    """

    def bascule_join(self, endpoint: str | None = None, worker: str | None = None, apply: str | None = None) -> str:
        """Joins an endpoint (default: $BASCULE_ENDPOINT) and returns the worker's name there. Does not block.

        A second call leaves the endpoint joined before. apply: "auto", "load" or "scatter", how versions get into the
        model (scatter.py); default: $BASCULE_APPLY. Raises BasculeError: INVALID_ARGUMENT for a missing endpoint or an
        unknown `apply`.
        """
        from vllm.config import set_current_vllm_config

        from .checkpoint import needed_names
        from .place import place_of
        from .rank import Rank
        from .scatter import scatter

        self.bascule_leave()
        place = place_of(self.vllm_config, self.rank, self.device, endpoint, worker)
        with set_current_vllm_config(self.vllm_config):
            model = self.model_runner.get_model()
            self.bascule_rank = Rank(place, scatter(apply, place, model, self.vllm_config),
                                     needed_names(model, self.vllm_config))
        return self.bascule_rank.place.worker

    def bascule_take(self, version: int | None = None, timeout: float = 30) -> int | None:
        """Takes and loads `version` or a newer one, by default the newest. Joins first if necessary.

        Blocks up to `timeout` seconds for it. Returns its number; None if none came, or it was loaded before. Raises
        what loading raised.
        """
        from vllm.config import set_current_vllm_config

        if getattr(self, "bascule_rank", None) is None:
            self.bascule_join()
        with set_current_vllm_config(self.vllm_config):
            return self.bascule_rank.update(self.model_runner.get_model(), self.model_runner.model_config, version,
                                            timeout)

    def bascule_leave(self) -> None:
        """Leaves the endpoint, if one was joined."""
        if getattr(self, "bascule_rank", None) is not None:
            self.bascule_rank.close()
        self.bascule_rank: Any = None
