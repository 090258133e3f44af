"""Both ends of a collector's weight scheme: the trainer's, which sends, and a worker's, whose policy follows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.weight_update.weight_sync_schemes import WeightStrategy

from ..errors import BasculeError, BasculeTimeoutError
from ..hf import Following
from ..places import Loader, check_tied
from ..sender import Sender
from .double_buffer import flat

_EXTRA = "__extra_state__"  # a module's state besides tensors, which TorchRL's strategy extracts and applies
_LOOK_EVERY = 0.2  # seconds between two looks for processes that have ended


def worker_name(worker: int | None) -> str:
    """A collector worker's name at the sender; empty without a number."""
    return "" if worker is None else f"worker-{worker}"


class TrainerEnd:
    """Sends a model's tensors to workers 0, 1, …, and raises if a worker does not have them afterwards.

    ended: a function of a worker's number. It returns how the worker's process ended, or None if the process still runs
    or nothing is known about it.

    Raises BasculeError: INVALID_ARGUMENT if the model has no tensors; or as Sender does.
    """

    def __init__(self, endpoint: str, model: torch.nn.Module, strategy: WeightStrategy, workers: int,
                 ended: Callable[[int], str | None]):
        self._model, self._strategy, self._workers, self._ended = model, strategy, workers, ended
        self._tensors = dict(flat(strategy.extract_weights(model)))
        if not self._tensors:
            raise BasculeError(f"the policy, a {type(model).__name__}, has no tensors to send; give no "
                               "weight_sync_schemes", "INVALID_ARGUMENT")
        self.sender = Sender(endpoint)
        try:
            self.sender.register_model(self._tensors, rename=None)
        except BaseException:
            self.sender.close()
            raise

    def connect(self, timeout: float) -> None:
        """Waits up to `timeout` seconds for the workers, and sends them their first weights.

        Ignores workers whose process has ended: TorchRL checks them next, and knows their errors. Raises
        BasculeTimeoutError if workers are missing; BasculeError: UNAVAILABLE if a living one does not have the weights.
        """
        deadline = time.monotonic() + timeout
        while living := [worker for worker in range(self._workers) if self._ended(worker) is None]:
            try:
                self.sender.wait_for_workers(len(living), _LOOK_EVERY)
                break
            except BasculeTimeoutError as error:
                if time.monotonic() > deadline:
                    raise BasculeTimeoutError(f"not all {len(living)} workers of the collector joined within {timeout} "
                                              f"seconds: {error}", "DEADLINE_EXCEEDED") from None
        if living:
            failed = self._failed(self.sender.send(), living)
            if errors := [error for worker, error in failed.items() if self._ended(worker) is None]:
                raise BasculeError(f"the first weights: {'; '.join(errors)}", "UNAVAILABLE")

    def send_weights(self, weights: Any = None, worker_ids: int | Sequence[int] | None = None) -> None:
        """Sends weights. Blocks until the policies of all workers, or of `worker_ids`, have them.

        weights: a module, a TensorDict or a dict with the model's names; None: the model as it is now.

        Raises BasculeError: INVALID_ARGUMENT names a tensor; UNAVAILABLE names the workers that do not have the
        weights, and says why. The others have them.
        """
        workers = self._numbers(worker_ids)
        names = [worker_name(worker) for worker in workers if self._ended(worker) is None]
        if not names:
            raise BasculeError("no worker is left to get the weights: " + "; ".join(map(self._absent, workers)),
                               "UNAVAILABLE")
        given = self._given(weights)
        report = self.sender.send(given, worker_ids=() if worker_ids is None else names)
        if failed := self._failed(report, workers):
            raise BasculeError(f"version {report.version} of the weights did not come to all: "
                               + "; ".join(failed.values()), "UNAVAILABLE")

    def close(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        self.sender.close()

    # ----

    def _given(self, weights: Any) -> Mapping[str, Any] | None:
        """The weights to send; None: the registered tensors, which were updated to the model's present ones."""
        if isinstance(weights, dict) and weights and all(isinstance(key, int) for key in weights):
            raise BasculeError("found weights by worker; expected one set of weights, and worker_ids for some workers",
                               "INVALID_ARGUMENT")
        given = flat(self._strategy.extract_weights(self._model if weights is None else weights))
        given = {name: tensor for name, tensor in self._tensors.items() if name.startswith(_EXTRA)} | dict(given)
        check_names("the weights", given, "the registered model", self._tensors)
        if weights is not None:
            return given
        self._tensors.update(given)
        return None

    def _numbers(self, worker_ids: Any) -> list[int]:
        if worker_ids is None:
            return list(range(self._workers))
        workers = [worker_ids] if isinstance(worker_ids, int) else list(worker_ids)
        for worker in workers:
            if not isinstance(worker, int) or not 0 <= worker < self._workers:
                raise BasculeError(f"worker_ids: expected numbers below {self._workers}, found {worker!r}",
                                   "INVALID_ARGUMENT")
        return workers

    def _failed(self, report: Any, workers: Iterable[int]) -> dict[int, str]:
        """Returns the reason for each worker that does not have the version."""
        reports = {each.worker: each for each in report.workers}
        failed = {}
        for worker in workers:
            its = reports.get(worker_name(worker))
            if its is None:
                failed[worker] = self._absent(worker)
            elif its.error is not None or its.state != "serving":
                failed[worker] = self._ended(worker) or str(its.error or f"{worker_name(worker)} is {its.state}")
        return failed

    def _absent(self, worker: int) -> str:
        return self._ended(worker) or f"{worker_name(worker)} is no longer at the endpoint"


class PolicyPlaces(Loader):
    """A worker's policy, into which Following loads versions between two calls of the policy.

    policy: returns the present module. TorchRL starts a worker with a policy on the device "meta", and may replace it.
    loaded: called with each version before it is acknowledged.
    """

    device = "cpu"  # the one that reads the slots
    in_place = False

    def __init__(self, policy: Callable[[], torch.nn.Module], strategy: WeightStrategy,
                 loaded: Callable[[TensorDict], None]):
        self._policy, self._strategy, self._loaded = policy, strategy, loaded

    @property
    def model(self) -> torch.nn.Module:
        """The present policy."""
        return self._policy()

    def load(self, weights: Mapping[str, Any], description: str = "") -> None:
        """Loads all of a version, or nothing. A policy needs no description.

        Raises BasculeError (INVALID_ARGUMENT), which names a tensor that did not come, that the policy lacks, or whose
        shape or type differs.
        """
        model = self.model
        places = _own(flat(TensorDict.from_module(model)))
        own = _own(weights)
        check_names("the weights", own, "the worker's policy", places)
        for name, weight in own.items():
            _check_place(name, places[name], weight)
        check_tied(places, own)
        first = any(place.is_meta for place in places.values())
        given = TensorDict({name: weight.clone() if first else weight for name, weight in weights.items()})
        given = given.unflatten_keys(".")
        with torch.no_grad():
            self._strategy.apply_weights(model, given, inplace=not first)
        self.settle()
        self._loaded(given)

    def settle(self) -> None:
        """Waits until the GPU has finished its copies from a slot."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def keep(self) -> None:
        """Does nothing: the tensors are already the policy's own memory."""


class WorkerEnd:
    """Keeps a worker's policy at the newest version."""

    def __init__(self, places: PolicyPlaces, endpoint: str, worker: str):
        self._following = Following(places, endpoint, worker, "token")

    def connect(self, timeout: float) -> None:
        """Blocks until the policy has its first weights. Raises BasculeTimeoutError after `timeout` seconds."""
        self._following.wait(1, timeout)

    def receive_weights(self, timeout: float | None = None, *, weights: Any = None, model: Any = None,
                        strategy: Any = None) -> None:
        """Does nothing: the policy follows in the background."""

    def close(self) -> None:
        """Leaves the endpoint after the policy's calls in progress. A second call does nothing."""
        self._following.close()


def check_names(what: str, given: Iterable[str], where: str, known: Iterable[str]) -> None:
    """Raises BasculeError (INVALID_ARGUMENT), which names a tensor that is in only one of `given` and `known`."""
    if missing := sorted(set(known) - set(given)):
        raise BasculeError(f"tensor {missing[0]} of {where} is not among {what}", "INVALID_ARGUMENT")
    if more := sorted(set(given) - set(known)):
        raise BasculeError(f"tensor {more[0]} of {what} is not in {where}", "INVALID_ARGUMENT")


def _own(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters and buffers, without the extra state."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(_EXTRA)}


def _check_place(name: str, place: torch.Tensor, weight: torch.Tensor) -> None:
    floats = place.is_floating_point() and weight.is_floating_point()
    if place.shape != weight.shape or (place.dtype != weight.dtype and not floats):
        raise BasculeError(f"tensor {name} came as {weight.dtype} {list(weight.shape)}; the policy's is {place.dtype} "
                           f"{list(place.shape)}", "INVALID_ARGUMENT")
