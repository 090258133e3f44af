"""The backend "bascule" for TorchRL's collectors. Importing this module registers it:

    import bascule.torchrl.collectors

    scheme = WeightSyncScheme.from_backend("bascule", endpoint="shm:///run/user/1000/grpo")
    collector = MultiSyncCollector(…, policy=policy, weight_sync_schemes={"policy": scheme})
    ...
    collector.update_policy_weights_()       # returns once every worker's policy has these weights; else raises

It needs TorchRL 0.14.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import torch
from torchrl.weight_update.weight_sync_schemes import WeightSyncScheme, register_weight_sync_backend

from ..errors import BasculeError
from ..sender import Sender
from .ends import PolicyPlaces, TrainerEnd, WorkerEnd, worker_name


@register_weight_sync_backend("bascule")
class BasculeWeightSyncScheme(WeightSyncScheme):
    """One endpoint for one model of a collector: the trainer's process sends, each worker's policy follows.

    endpoint: a URL such as "shm:///run/user/1000/grpo", a different one per scheme. timeout: how many seconds the
    workers have to start, and how many a worker waits for its first weights.

    Only this model's weights are sent. An update is a whole version; a worker flips to it between two policy calls.
    """

    def __init__(self, endpoint: str, *, timeout: float = 60.0):
        super().__init__()
        self.endpoint, self.timeout = endpoint, timeout

    @property
    def sender(self) -> Sender | None:
        """The trainer's bascule.Sender, for its workers and reports; None before the collector exists."""
        return getattr(self._shared_transport, "sender", None)

    def create_transport(self, **kwargs: Any) -> TrainerEnd:
        """Takes the endpoint and registers the model. kwargs: model, workers and ended of TrainerEnd."""
        return TrainerEnd(self.endpoint, strategy=self.strategy, **kwargs)

    def send(self, weights: Any = None, worker_ids: int | list[int] | None = None) -> None:
        """Sends like TrainerEnd.send_weights(). Raises RuntimeError before the collector is connected."""
        if not self.synchronized_on_sender:
            raise RuntimeError("Must be initialized and synchronized on sender before sending weights")
        self._shared_transport.send_weights(weights, worker_ids)

    def shutdown(self) -> None:
        """Leaves the endpoint. The collector does not call it; a scheme that is garbage-collected leaves as well."""
        super().shutdown()
        for end in (self._shared_transport, self._receiver_transport):
            if end is not None:
                end.close()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what belongs to this process."""
        return super().__getstate__() | {"_shared_transport": None, "_receiver_transport": None, "_sent": None}

    # ---- The trainer's process

    def _init_on_sender_impl(self, *, model_id: str | None = None, context: Any = None, model: Any = None,
                             num_workers: int | None = None, **kwargs: Any) -> None:
        """Takes `context` (the collector), or model and num_workers. Opens nothing yet: workers may be forked next."""
        self.model_id, self.context = model_id, context
        workers = getattr(context, "num_workers", num_workers)
        if not workers:
            raise BasculeError("expected a collector with worker processes, or num_workers, found "
                               f"{type(context).__name__}; a collector in the trainer's process needs no scheme",
                               "INVALID_ARGUMENT")
        model = _model_of(context, model_id) if model is None else model
        if not isinstance(model, torch.nn.Module):
            raise BasculeError(f"expected a policy that is a torch module, found {type(model).__name__}",
                               "INVALID_ARGUMENT")
        self._sent = {"model": model, "workers": workers, "ended": self._ended}

    def _setup_connection_and_weights_on_sender_impl(self, *, worker_idx: int | None = None,
                                                     weights: Any = None) -> None:
        self._shared_transport = self.create_transport(**self._sent)
        try:
            self._shared_transport.connect(self.timeout)
        except BaseException:
            self._shared_transport.close()
            raise

    def _ended(self, worker: int) -> str | None:
        processes = getattr(self.context, "procs", ())
        if worker >= len(processes) or processes[worker].is_alive():
            return None
        process = processes[worker]
        return f"{worker_name(worker)} (process {process.pid}) has ended with exit code {process.exitcode}"

    # ---- A worker's process

    def _init_on_receiver_impl(self, *, model_id: str, context: Any = None, model: Any = None,
                               worker_idx: int | None = None, **kwargs: Any) -> None:
        self.model_id, self.context = model_id, context
        self.worker_idx = getattr(context, "worker_idx", worker_idx)
        self.model = _model_of(context, model_id) if model is None else model

    def _setup_connection_and_weights_on_receiver_impl(self, *, worker_idx: int | None = None) -> None:
        worker = self.worker_idx if worker_idx is None else worker_idx
        name = worker_name(worker) or f"{socket.gethostname()}-{os.getpid()}"
        places = PolicyPlaces(lambda: self.model, self.strategy, self._loaded)
        self._receiver_transport = WorkerEnd(places, self.endpoint, name)
        try:
            self._receiver_transport.connect(self.timeout)
        except BaseException:
            self._receiver_transport.close()
            raise

    def _loaded(self, weights: Any) -> None:
        """Counts the policy's version; a collector of collectors passes the weights on instead."""
        collector = self.context
        if getattr(collector, "_weight_sync_schemes", None):
            collector.update_policy_weights_(weights, model_id=self.model_id)
        elif self.model_id == "policy" and hasattr(collector, "increment_version"):
            collector.increment_version()


def _model_of(context: Any, model_id: str | None) -> Any:
    """The collector's model, or a new one if it only has a policy factory that all workers share."""
    if model_id == "policy" and getattr(context, "policy", None) is None:
        factories = list(filter(None, getattr(context, "policy_factory", None) or ()))
        if factories and all(factory is factories[0] for factory in factories):
            return factories[0]()
        if factories:
            raise BasculeError("found a policy_factory for each worker; expected one for all, since all get the same "
                               "weights", "INVALID_ARGUMENT")
    return context.get_model(model_id)
