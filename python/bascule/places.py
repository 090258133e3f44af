"""Loads versions into a module's tensors, either by copying or by pointing the tensors at the slot's memory."""

from __future__ import annotations

import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from .errors import BasculeError
from .modules import check_loadable
from .tensors import TensorSpec, check_elements, naming, renamed


class Loader(ABC):
    """What Following brings versions to: something that holds a model."""

    model: Any
    device: str  # the one that reads the slots
    in_place: bool  # whether the model then reads the slot

    def check_offer(self, tensors: list[TensorSpec], description: str) -> None:
        """Raises BasculeError for a sender whose versions load() would always refuse. Any thread may call it."""

    @abstractmethod
    def load(self, weights: Mapping[str, Any], description: str) -> None:
        """Loads a whole version, or nothing, while the model is not being called. Raises BasculeError.

        description: what the sender registered with the weights.
        """

    @abstractmethod
    def settle(self) -> None:
        """Waits until the GPU has finished its work on the tensors."""

    @abstractmethod
    def keep(self) -> None:
        """Moves the model out of a slot, into its own memory."""


class Places(Loader):
    """One module's parameters and persistent buffers, looked up again for each version: they may have been replaced."""

    def __init__(self, model: Any, rename: Callable[[str], str] | None, in_place: bool):
        self.model, self._rename, self.in_place = model, rename, in_place
        self._own: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # the last ones, by name
        self._check_model()
        for tensor, (name, *_) in self._tensors():
            self._check_place(name, tensor)
        devices = {str(tensor.device): name for tensor, (name, *_) in self._tensors()}
        if len(devices) != 1:
            raise BasculeError("expected a model on one device, found "
                               + (" and ".join(f"{name} on {device}" for device, name in devices.items()) or "no tensors"),
                               "INVALID_ARGUMENT")
        self.device = next(iter(devices))
        # By id: tensors set to a slot, their requires_grad, and the memory that they had, which others may have shared.
        self._ours: dict[int, tuple[Any, bool, Any]] = {}

    def load(self, weights: Mapping[str, Any], description: str) -> None:
        """Loads a whole version, or nothing. The model must not be called meanwhile. A module needs no description.

        Raises BasculeError (INVALID_ARGUMENT), which names a tensor that the version lacks, that the model lacks, or
        whose shape or type differs.
        """
        import torch

        if '"peft_type"' in description:
            raise BasculeError("the sender sends an adapter, not a model: follow it with bascule.peft.follow() and a model "
                               "that PEFT has wrapped", "INVALID_ARGUMENT")
        pairs: list[tuple[Any, Any]] = []
        known: set[str] = set()
        for tensor, names in (tensors := self._tensors()):
            known.update(names)
            if (name := next((name for name in names if name in weights), None)) is None:
                raise BasculeError(f"tensor {' = '.join(names)} of the model is not among the weights", "INVALID_ARGUMENT")
            with naming(name, tensor):
                check_elements(tensor)
            self._check(name, tensor, weights[name])
            pairs.append((tensor, weights[name]))
        if more := sorted(weights.keys() - known):
            raise BasculeError(f"tensor {more[0]} is not in the model", "INVALID_ARGUMENT")
        check_tied({name: tensor for tensor, names in tensors for name in names}, weights, by_memory=not self.in_place)
        made_for_inference = any(tensor.is_inference() for tensor, _ in pairs)  # can only be written in that mode
        with torch.inference_mode() if made_for_inference else torch.no_grad():
            if self.in_place:
                for tensor, _ in pairs:
                    self._ours.setdefault(id(tensor), (tensor, tensor.requires_grad, _elements(tensor)))
            for tensor, weight in pairs:
                if self.in_place:
                    tensor.requires_grad_(False)  # else an optimizer step would write
                    tensor.grad = None
                    tensor.data = weight
                    torch.autograd.graph.increment_version(tensor)  # so that no backward pass uses this version unnoticed
                else:
                    tensor.copy_(weight)
        self.settle()

    def settle(self) -> None:
        """Waits until the GPU has finished its work on the tensors."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize(self.device)

    def keep(self) -> None:
        """Copies tensors that lie in a slot back into the model's own memory.

        Tensors that shared memory, and are one tensor of the slot, share it again.
        """
        copies: dict[Any, Any] = {}
        for tensor, had_gradient, before in self._ours.values():
            key = before, _elements(tensor)
            if key not in copies:
                copies[key] = tensor.data.clone()
            tensor.data = copies[key]
            tensor.requires_grad_(had_gradient)
        self._ours = {}
        self.settle()

    # ----

    def _tensors(self) -> list[tuple[Any, list[str]]]:
        """Each tensor of the model once, with all its names, even while functional_call() has put others there.

        functional_call() does so before its call of the model, which waits for the flip in progress.
        """
        named = {name: owner[key] for name, (owner, key) in self._find().items()}
        lent = _lent()  # looked up later: who put a tensor there waits until the flip is over
        found: dict[int, tuple[Any, list[str]]] = {}
        for name, tensor in named.items():
            own = self._own.get(name, tensor) if id(tensor) in lent else tensor
            self._own[name] = own
            found.setdefault(id(own), (own, []))[1].append(name)
        return list(found.values())

    def _find(self) -> Mapping[str, Any]:
        """The place of each tensor that versions change, by the sender's name for it: a dictionary, and the key there."""
        return renamed(self.model, self._rename)

    def _check_model(self) -> None:
        check_loadable(self.model)

    def _check_place(self, name: str, tensor: Any) -> None:
        with naming(name, tensor):
            check_elements(tensor)
            if self.in_place and tensor.device.type == "cpu" and tensor.is_shared():
                raise BasculeError("it is in shared memory (share_memory()), where other processes would keep its present "
                                   "weights for ever; copy instead (in_place=False)", "INVALID_ARGUMENT")

    def _check(self, name: str, tensor: Any, weight: Any) -> None:
        floats = tensor.is_floating_point() and weight.is_floating_point()
        if tensor.shape != weight.shape or (tensor.dtype != weight.dtype and not (floats and not self.in_place)):
            raise BasculeError(f"tensor {name} came as {weight.dtype} {list(weight.shape)}; the model's is {tensor.dtype} "
                               f"{list(tensor.shape)}" + (", and in place they must be the same" if self.in_place else ""),
                               "INVALID_ARGUMENT")
        if self.in_place and tensor.is_inference():
            raise BasculeError(f"tensor {name} of the model was made under torch.inference_mode(), and cannot be set to "
                               "other memory; copy instead (in_place=False)", "INVALID_ARGUMENT")
        if not self.in_place and any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride())):
            raise BasculeError(f"elements of tensor {name} of the model share memory (it is expanded), and cannot be "
                               "written one by one; give the model a clone() of it", "INVALID_ARGUMENT")
        if str(tensor.device) != self.device:
            raise BasculeError(f"tensor {name} of the model is on {tensor.device}; it was on {self.device}",
                               "INVALID_ARGUMENT")


def check_tied(places: Mapping[str, Any], weights: Mapping[str, Any], by_memory: bool = True) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if one of the engine's tensors would be written with two different ones.

    places: the engine's tensors by all their names. by_memory: two objects in one memory are one tensor. The sender keeps
    tied tensors once; two that are not tied there must at least be equal.
    """
    import torch

    first: dict[Any, str] = {}
    for name, place in places.items():
        if name not in weights:
            continue
        other = first.setdefault(_elements(place) if by_memory and not place.is_meta else id(place), name)
        one, two = weights[other], weights[name]
        if one.data_ptr() != two.data_ptr() and not (one.dtype == two.dtype and torch.equal(one, two)):
            raise BasculeError(f"tensors {other} and {name} are one tensor in the engine's model (tied), and came with "
                               "different elements; tie them in the trainer, or untie them in the engine",
                               "INVALID_ARGUMENT")


def _elements(tensor: Any) -> tuple[Any, ...]:
    """Equal for two tensors with the same elements in the same memory; never equal for empty ones."""
    return tensor.data_ptr() if tensor.numel() else id(tensor), tensor.dtype, tensor.shape, tensor.stride()


def _lent() -> set[int]:
    """The ids of tensors with which a thread is in torch.func.functional_call(), for whatever module."""
    from torch.nn.utils import stateless

    code, lent = stateless._functional_call.__code__, set()
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code is code:
                lent.update(map(id, frame.f_locals["parameters_and_buffers"].values()))
            frame = frame.f_back
    return lent
