"""Finds, before each send, which of a model's tensors were moved or replaced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import getitem, is_
from typing import Any

from .errors import BasculeError
from .modules import check_sendable
from .tensors import HOST, describe, describe_all, is_module, renamed

_Spec = tuple[str, list[int], list[int], int, int]  # as describe() gives it


class Followed:
    """Keeps a module's or a mapping's registered tensors alive. A module's parameters and submodules may be replaced.

    A model has many tensors, so each check loops in C (map).
    """

    def __init__(self, model: Any, rename: Callable[[str], str] | None):
        self._model, self._rename = model, rename
        self._structure = _Structure(model)
        self._find_places(renamed(model, rename))
        self._tensors = self._look()
        check_sendable(model, dict(zip(self.names, self._tensors)))
        self._specs = describe_each(self.names, self._tensors)
        self._glance: Any = glance_at(self.names, self._tensors)
        self._before: list[Any] = []  # alive until the core knows their successors' addresses
        self.device = next((spec[4] for spec in self._specs if spec[4] != HOST), HOST)
        self.all = describe_all(dict(zip(self.names, self._tensors)))

    def follow(self, move: Callable[[int, int, list[int]], None]) -> None:
        """Calls `move` with index, address and strides of each tensor whose address or strides changed.

        Raises BasculeError before it calls `move`: INVALID_ARGUMENT names a tensor whose type, shape or device changed,
        that is no longer in the model, or that was not registered.
        """
        if self._structure.changed():
            self._find_places_again()
        tensors = self._look()
        glance = glance_at(self.names, tensors)
        if glance == self._glance and all(map(is_, tensors, self._tensors)):
            return
        specs = describe_each(self.names, tensors)
        for name, spec, before in zip(self.names, specs, self._specs):
            check_same(name, spec, before)
        # A signal may end this anywhere: the next check then reports all of it again, and nothing is freed before.
        self._glance = None
        self._before += self._tensors
        self._tensors = tensors
        for i, (spec, before) in enumerate(zip(specs, self._specs)):
            if spec != before:
                move(i, spec[3], spec[2])
        self._specs, self._glance, self._before = specs, glance, []

    def _find_places(self, places: dict[str, tuple[Any, str]]) -> None:
        self.names = list(places)
        self._owners = [owner for owner, _ in places.values()]
        self._keys = [key for _, key in places.values()]

    def _find_places_again(self) -> None:
        structure = _Structure(self._model)
        places = renamed(self._model, self._rename)
        if more := sorted(places.keys() - set(self.names)):
            raise BasculeError(f"tensor {more[0]} is in the model and was not registered; make another sender for it",
                               "INVALID_ARGUMENT")
        if missing := sorted(set(self.names) - places.keys()):
            raise BasculeError(f"tensor {missing[0]} was registered and is no longer in the model",
                               "INVALID_ARGUMENT")
        check_sendable(self._model, {name: owner[key] for name, (owner, key) in places.items()})
        self._find_places({name: places[name] for name in self.names})
        self._structure = structure

    def _look(self) -> list[Any]:
        try:
            return list(map(getitem, self._owners, self._keys))
        except KeyError:
            missing = next(name for name, owner, key in zip(self.names, self._owners, self._keys) if key not in owner)
            raise BasculeError(f"tensor {missing} was registered and is no longer in the model",
                               "INVALID_ARGUMENT") from None


class _Structure:
    """Which submodules a module has, and how many tensors each of them has."""

    def __init__(self, model: Any):
        modules = list(model.modules()) if is_module(model) else []
        self._dicts = [each for module in modules for each in (module._modules, module._parameters, module._buffers)]
        self._lengths = list(map(len, self._dicts))
        self._parents = [module._modules for module in modules for _ in module._modules]
        self._keys = [key for module in modules for key in module._modules]
        self._children = list(map(getitem, self._parents, self._keys))

    def changed(self) -> bool:
        try:
            return (list(map(len, self._dicts)) != self._lengths
                    or not all(map(is_, map(getitem, self._parents, self._keys), self._children)))
        except KeyError:
            return True


def describe_each(names: list[str], tensors: list[Any]) -> list[_Spec]:
    """Returns describe() of each tensor."""
    return [describe(name, tensor) for name, tensor in zip(names, tensors)]


def glance_at(names: list[str], tensors: list[Any]) -> list[Any]:
    """A value that changes if a tensor's address, strides or number of elements does.

    It may not change for another view of the same bytes, such as .view(torch.int32); this does no harm, since the same
    bytes are sent.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return describe_each(names, tensors)
    try:
        contiguous = list(map(torch.Tensor.is_contiguous, tensors))
        strides = [] if all(contiguous) else [tensor.stride() for tensor in tensors]
        return [list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.numel, tensors)), strides]
    except TypeError:  # not all of them are torch tensors
        return describe_each(names, tensors)


def check_same(name: str, spec: _Spec, before: _Spec) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if type, shape or device changed."""
    if (spec[0], spec[1], spec[4]) == (before[0], before[1], before[4]):
        return
    now, then = (f"{dtype} {shape} on {'the host' if device == HOST else f'device {device}'}"
                 for dtype, shape, _, _, device in (spec, before))
    raise BasculeError(f"tensor {name} is {now}; it was registered as {then}, and these must not change",
                       "INVALID_ARGUMENT")
