"""Finds, before each send, which of a model's tensors were moved or replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import eq, getitem, is_
from typing import Any

from ._torch import imported
from .errors import BasculeError
from .modules import check_sendable
from .tensors import HOST, describe, describe_all, describe_unnamed, is_module, renamed

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
        self._glance: Glance | None = Glance(self._tensors)
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
        if self._glance is not None and all(map(is_, tensors, self._tensors)) and self._glance.same(tensors):
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
        self._specs, self._glance, self._before = specs, Glance(tensors), []

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
        self._parents = [module._modules for module in modules for _ in module._modules.keys()]
        self._keys = [key for module in modules for key in module._modules.keys()]
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


class Glance:
    """Sees whether anything changed that says which bytes are the tensors' elements, and how to read them.

    An address alone says little: after model.half() and model.bfloat16() the allocator may give a tensor its first one.
    """

    def __init__(self, tensors: list[Any]):
        torch = imported()
        self._reads: list[Callable[[list[Any]], Iterator[Any]]] = [partial(map, describe_unnamed)]
        if torch is not None and all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            each = torch.Tensor
            reads = [each.data_ptr, each.dtype.__get__, each.size, each.stride, each.get_device, each.is_neg]
            if any(tensor.is_complex() for tensor in tensors):
                reads.append(each.is_conj)
            self._reads = [partial(map, read) for read in reads]
            # A storage that was cut short may keep its address.
            self._reads.append(lambda tensors: map(torch.UntypedStorage.nbytes, map(each.untyped_storage, tensors)))
        self._seen = [list(read(tensors)) for read in self._reads]

    def same(self, tensors: list[Any]) -> bool:
        """Whether the tensors lie as they did. It keeps no values: many new objects would start garbage collections."""
        try:
            return all(all(map(eq, read(tensors), seen)) for read, seen in zip(self._reads, self._seen))
        except (RuntimeError, TypeError, ValueError, BufferError):  # one of them has no memory now, or is no tensor
            return False


def check_same(name: str, spec: _Spec, before: _Spec) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if type, shape or device changed."""
    if (spec[0], spec[1], spec[4]) == (before[0], before[1], before[4]):
        return
    now, then = (f"{dtype} {shape} on {'the host' if device == HOST else f'device {device}'}"
                 for dtype, shape, _, _, device in (spec, before))
    raise BasculeError(f"tensor {name} is {now}; it was registered as {then}, and these must not change",
                       "INVALID_ARGUMENT")
