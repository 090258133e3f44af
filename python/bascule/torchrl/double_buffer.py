"""Replaces TorchRL's double buffer: the same API, whole versions, and an acknowledgment from each engine.

    from bascule.torchrl import SyncScheme                 # was: VLLMDoubleBufferSyncScheme

    scheme = SyncScheme("shm:///run/user/1000/grpo")       # was: remote_addr="/tmp/weights"
    sender = scheme.create_sender()                        # trainer
    sender.register_model(policy)
    sender.update_weights()

    receiver = scheme.create_receiver(engine)              # engine: returns once the next weights are loaded
    receiver.poll_and_apply(timeout=180.0)

It needs torch and accepts TensorDicts; TorchRL itself is not imported.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import BasculeError
from ..names import hf_names
from ..places import check_tied
from ..receiver import Receiver
from ..sender import Sender
from ..tensors import is_module, tensors_of


class SyncScheme:
    """One endpoint for the trainer and its engines.

    endpoint: a URL such as "shm:///run/user/1000/grpo". rename: maps a tensor's name in the trainer's model to its name
    in the engines. workers: how many engines the first update waits for, at most `timeout` seconds.
    """

    def __init__(self, endpoint: str, *, rename: Callable[[str], str] | None = hf_names, workers: int = 1,
                 timeout: float = 180.0):
        self.endpoint, self.rename, self.workers, self.timeout = endpoint, rename, workers, timeout

    def create_sender(self) -> WeightSender:
        """The trainer's end. It takes the endpoint when a model is registered."""
        return WeightSender(self)

    def create_receiver(self, engine: Any, *, worker: str = "") -> WeightReceiver:
        """An engine's end. Joins the endpoint; does not block.

        engine: an object with load_weights(iterable of names and tensors), like vLLM's models, or a module, which must
        have the same tensors as the trainer's; floating-point types are cast if they differ. worker: the engine's name;
        default: host and process id.
        """
        return WeightReceiver(self, engine, worker or f"{socket.gethostname()}-{os.getpid()}")


class WeightSender:
    """The trainer's end. `sender` is its bascule.Sender, for send() and reports."""

    def __init__(self, scheme: SyncScheme):
        self._scheme = scheme
        self.sender: Sender | None = None
        self._names: set[str] = set()

    def register_model(self, model: Any) -> None:
        """Takes the endpoint and registers a module or a TensorDict, whose tensors may later be changed and replaced.

        Raises BasculeError as Sender and Sender.register_model() do.
        """
        sender = Sender(self._scheme.endpoint)
        try:
            tensors = model if is_module(model) else flat(model)
            sender.register_model(tensors, rename=self._scheme.rename)
        except BaseException:
            sender.close()
            raise
        self.sender = sender
        self._names = set(tensors_of(tensors, self._scheme.rename))

    def update_weights(self, weights: Any = None) -> None:
        """Publishes the registered tensors, or `weights` (a module, a TensorDict, a mapping) with the same names.

        Blocks until the previous version has settled and these weights may be changed again; the first call also waits
        for the engines. Buffers in `weights` that are not persistent, which TensorDict.from_module() yields, are left
        out.

        Raises RuntimeError without a registered model; BasculeError, which names the tensor or the worker.
        """
        if self.sender is None:
            raise RuntimeError("Transport not initialized. Call register_model first.")
        if self._scheme.workers:
            self.sender.wait_for_workers(self._scheme.workers, self._scheme.timeout)
            self._scheme = SyncScheme(self._scheme.endpoint, rename=self._scheme.rename, workers=0)
        if weights is not None and not is_module(weights):
            rename = self._scheme.rename or (lambda name: name)
            weights = {name: tensor for name, tensor in flat(weights).items() if rename(name) in self._names}
        self.sender.update_weights(weights)

    def close(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        if self.sender is not None:
            self.sender.close()


class WeightReceiver:
    """An engine's end. `receiver` is its bascule.Receiver."""

    def __init__(self, scheme: SyncScheme, engine: Any, worker: str):
        self._engine = engine
        self.receiver = Receiver(scheme.endpoint, worker=worker)

    def poll_and_apply(self, timeout: float = 180.0) -> bool:
        """Blocks up to `timeout` seconds for the next weights, and loads them; returns False if none came.

        The trainer's report says whether they were loaded, or why not. Raises what the engine raises; BasculeError if
        the sender refuses this engine.
        """
        if self.receiver.take(timeout=timeout) is None:
            return False
        try:
            self.apply_weights(self.receiver.weights())
        except BaseException as error:
            self.receiver.finish(error)
            raise
        self.receiver.finish()
        return True

    def apply_weights(self, weights: Any, inplace: bool = True) -> None:
        """Loads `weights`, a mapping or a TensorDict, and empties the engine's prefix cache if it has one.

        Of a module, all parameters and persistent buffers are written, or none. Raises BasculeError: INVALID_ARGUMENT
        names a tensor that the module does not have, that is missing, or that has another shape or type there;
        FAILED_PRECONDITION if requests still use the cache. Raises ValueError unless `inplace`.
        """
        if not inplace:
            raise ValueError("Cannot apply weights out of place for vLLM double-buffer")
        _load(self._engine, flat(weights))
        reset = getattr(self._engine, "reset_prefix_cache", None)
        if callable(reset) and _is_refused(self._engine, reset) and _is_refused(self._engine, reset):
            raise BasculeError("the prefix cache of the engine could not be emptied: requests still use it",
                               "FAILED_PRECONDITION")

    def close(self) -> None:
        """Leaves the endpoint. A second call does nothing."""
        self.receiver.close()


def flat(weights: Any) -> Mapping[str, Any]:
    """A TensorDict's leaves by dotted names, or a copy of a mapping."""
    if hasattr(weights, "flatten_keys"):
        weights = weights.flatten_keys(".")
    return dict(weights.items())


def _is_refused(engine: Any, reset: Callable[[], Any]) -> bool:
    """Empties the engine's prefix cache; returns whether the engine answered that it did not."""
    answer = _check_done(engine, "reset_prefix_cache", reset())
    if not isinstance(answer, (bool, int, type(None))):
        raise BasculeError(f"reset_prefix_cache() of {type(engine).__name__} answered {answer!r:.200}; expected True, or "
                           "None if it cannot fail", "FAILED_PRECONDITION")
    return answer is False


def _load(engine: Any, weights: Mapping[str, Any]) -> None:
    if callable(getattr(engine, "load_weights", None)):
        pairs = iter(weights.items())
        _check_done(engine, "load_weights", engine.load_weights(pairs))
        if left := len(list(pairs)):
            raise BasculeError(f"load_weights() of {type(engine).__name__} returned before it had read {left} of "
                               f"{len(weights)} tensors", "FAILED_PRECONDITION")
    elif is_module(engine):
        places = tensors_of(engine, hf_names)
        buffers = {hf_names(name) for name, _ in engine.named_buffers()}  # TensorDict.from_module() yields all of them
        _write(places, {name: each for name, each in weights.items() if name in places or name not in buffers})
    else:
        raise BasculeError(f"create_receiver: expected an engine with load_weights() or a module, found "
                           f"{type(engine).__name__}", "INVALID_ARGUMENT")


def _check_done(engine: Any, method: str, result: Any) -> Any:
    """Returns the result. Raises BasculeError (INVALID_ARGUMENT) if it says that the call has not done its work yet."""
    if inspect.isawaitable(result) or inspect.isgenerator(result):
        if hasattr(result, "close"):
            result.close()  # else Python warns that it was never awaited
        raise BasculeError(f"{method}() of {type(engine).__name__} returns a {type(result).__name__}, and has done nothing "
                           "yet; give an engine whose method returns when it is done", "INVALID_ARGUMENT")
    return result


def _write(places: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Writes all weights, or none if one does not fit."""
    import torch

    if missing := sorted(set(places) - set(weights)):
        raise BasculeError(f"the engine's tensor {missing[0]} is not among the weights", "INVALID_ARGUMENT")
    if more := sorted(set(weights) - set(places)):
        raise BasculeError(f"tensor {more[0]} is among the weights, and the engine has none of this name",
                           "INVALID_ARGUMENT")
    for name, place in places.items():
        given = weights[name]
        if place.shape != given.shape:
            raise BasculeError(f"tensor {name} has the shape {list(given.shape)}; the engine's has {list(place.shape)}",
                               "INVALID_ARGUMENT")
        if place.dtype != given.dtype and not (place.is_floating_point() and given.is_floating_point()):
            raise BasculeError(f"tensor {name} is {given.dtype}; the engine's is {place.dtype}, and only "
                               "floating-point types are cast", "INVALID_ARGUMENT")
    check_tied(places, weights)
    with torch.no_grad():
        for name, place in places.items():
            place.copy_(weights[name])
