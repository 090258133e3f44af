"""A worker extension: --worker-extension-cls bascule.vllm.WorkerExtension, for vLLMs and launchers without backends."""

from __future__ import annotations

from typing import Any


class WorkerExtension:
    """Methods of every worker, for collective_rpc(); `self` is vLLM's worker.

        llm.collective_rpc("bascule_join", kwargs={"endpoint": "shm:///run/user/1000/grpo"})
        llm.collective_rpc("bascule_take")     # the version of each rank, or None
        llm.reset_prefix_cache()
    """

    def bascule_join(self, endpoint: str | None = None, worker: str | None = None, apply: str | None = None) -> str:
        """Joins an endpoint, default $BASCULE_ENDPOINT, and says under which name. A second call leaves the first.

        apply: how versions get into the model, as in scatter.py; default $BASCULE_APPLY.
        """
        from vllm.config import set_current_vllm_config

        from .place import place_of
        from .rank import Rank
        from .scatter import scatter

        self.bascule_leave()
        place = place_of(self.vllm_config, self.rank, self.device, endpoint, worker)
        with set_current_vllm_config(self.vllm_config):
            self.bascule_rank = Rank(place, scatter(apply, place, self.model_runner.get_model(), self.vllm_config))
        return self.bascule_rank.place.worker

    def bascule_take(self, version: int | None = None, timeout: float = 30) -> int | None:
        """Takes a version, the newest without `version`, loads it, and says which; None: none came in time."""
        from vllm.config import set_current_vllm_config

        if getattr(self, "bascule_rank", None) is None:
            self.bascule_join()
        with set_current_vllm_config(self.vllm_config):
            return self.bascule_rank.update(self.model_runner.get_model(), self.model_runner.model_config, version,
                                            timeout)

    def bascule_leave(self) -> None:
        if getattr(self, "bascule_rank", None) is not None:
            self.bascule_rank.close()
        self.bascule_rank: Any = None
