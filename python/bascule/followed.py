"""Finds, before each send, which of a model's tensors were moved or replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import repeat
from operator import eq, getitem, is_
from typing import Any

from . import _core
from ._torch import imported
from .errors import BasculeError
from .sent import Sent
from .tensors import HOST, describe, describe_unnamed, is_module, of_described

_Spec = tuple[str, list[int], list[int], int, int]  # as describe() gives it


class Followed:
    """Keeps a module's or a mapping's registered tensors alive. A module's parameters and submodules may be replaced.

    A model has many tensors, so each check loops in C (map).
    """

    def __init__(self, model: Any, find: Callable[[], Sent], check: Callable[[dict[str, Any]], None]):
        """find: looks up what to send, again whenever the model's submodules change. check: refuses what cannot be sent."""
        self._model, self._find, self._check = model, find, check
        self._structure = _Structure(model)
        self.sent = find()
        self._find_places()
        self._tensors = self._look()
        check(dict(zip(self.names, self._tensors)))
        self._specs = describe_each(self._all_names, self._tensors)
        self._glance: Glance | None = Glance(self._tensors)
        self._before: list[Any] = []  # alive until the core knows their successors' addresses
        self.device = next((spec[4] for spec in self._specs if spec[4] != HOST), HOST)
        self.all = of_described(self.names, self._specs[:len(self.names)])
        self._add_arithmetic()

    def follow(self, move: Callable[[int, int, list[int]], None], move_factors: Callable[[int, int, int], None]) -> None:
        """Calls `move` with index, address and strides of each tensor whose address or strides changed.

        `move_factors` gets a tensor's index and the addresses of its product's factors. Raises BasculeError before it calls
        either: INVALID_ARGUMENT names a tensor whose type, shape or device changed, that is no longer in the model, or that
        was not registered.
        """
        if self._structure.changed():
            self._find_places_again()
        self.sent.check_unchanged()
        tensors = self._look()
        if self._glance is not None and all(map(is_, tensors, self._tensors)) and self._glance.same(tensors):
            return
        specs = describe_each(self._all_names, tensors)
        for name, spec, before in zip(self._all_names, specs, self._specs):
            check_same(name, spec, before)
        count = len(self.names)
        for name, spec, before in zip(self._all_names[count:], specs[count:], self._specs[count:]):
            if spec[2] != before[2]:
                raise BasculeError(f"tensor {name} has the strides {spec[2]}; it was registered with {before[2]}, and an "
                                   "adapter's strides must not change", "INVALID_ARGUMENT")
        # A signal may end this anywhere: the next check then reports all of it again, and nothing is freed before.
        self._glance = None
        self._before += self._tensors
        self._tensors = tensors
        for i, (spec, before) in enumerate(zip(specs[:count], self._specs)):
            if spec != before:
                move(i, spec[3], spec[2])
        for i, b, a in zip(self._with_product, specs[count::2], specs[count + 1::2]):
            move_factors(i, b[3], a[3])
        self._specs, self._glance, self._before = specs, Glance(tensors), []

    def _find_places(self) -> None:
        """Lists the tensors, and then the factors b and a of each product."""
        sent = self.sent
        self.names = list(sent.places)
        self._with_product = [i for i, name in enumerate(self.names) if name in sent.products]
        factors = {f"{name} (its adapter's {kind})": place for name in self.names if name in sent.products
                   for kind, place in zip(("b", "a"), sent.products[name][:2])}
        watched = {**sent.places, **factors}
        self._all_names = list(watched)
        self._owners = [place.owner for place in watched.values()]
        self._keys = [place.key for place in watched.values()]

    def _find_places_again(self) -> None:
        structure = _Structure(self._model)
        sent, before = self._find(), self.sent
        if more := sorted(sent.places.keys() - before.places.keys()):
            raise BasculeError(f"tensor {more[0]} is in the model and was not registered; make another sender for it",
                               "INVALID_ARGUMENT")
        if missing := sorted(before.places.keys() - sent.places.keys()):
            raise BasculeError(f"tensor {missing[0]} was registered and is no longer in the model",
                               "INVALID_ARGUMENT")
        self._check({name: place.owner[place.key] for name, place in sent.places.items()})
        before.check_same_arithmetic(sent)
        self.sent = replace(sent, places={name: sent.places[name] for name in self.names})
        self._find_places()
        self._structure = structure

    def _look(self) -> list[Any]:
        try:
            return list(map(getitem, self._owners, self._keys))
        except KeyError:
            missing = next(name for name, owner, key in zip(self._all_names, self._owners, self._keys) if key not in owner)
            raise BasculeError(f"tensor {missing} was registered and is no longer in the model",
                               "INVALID_ARGUMENT") from None

    def _add_arithmetic(self) -> None:
        for i, name in enumerate(self.names):
            if name in self.sent.scales:
                self.all.scale(i, self.sent.scales[name])
        factors = self._specs[len(self.names):]
        for i, b, a in zip(self._with_product, factors[::2], factors[1::2]):
            product = self.sent.products[self.names[i]]
            self.all.add_product(i, _factor(b, product.b.transposed), _factor(a, product.a.transposed), product.scale)


def _factor(spec: _Spec, transposed: bool) -> tuple[str, list[int], list[int], int]:
    """Type, shape, strides and address of a factor."""
    dtype, shape, strides, address, _ = spec
    return (dtype, shape[::-1], strides[::-1], address) if transposed else (dtype, shape, strides, address)


class _Structure:
    """Which submodules a module has, and under which names they and it have tensors."""

    def __init__(self, model: Any):
        modules = list(model.modules()) if is_module(model) else []
        dicts = [each for module in modules for each in (module._modules, module._parameters, module._buffers)]
        self._empty = [each for each in dicts if not each]  # most of them
        self._owners = [each for module in modules for each in (module._parameters, module._buffers) if each]
        self._lengths = list(map(len, self._owners))
        self._parents = [module._modules for module in modules if module._modules]
        self._children = list(map(dict, self._parents))
        # Two modules of such a class may be equal, so that comparing says little.
        self._may_be_equal = any(type(each).__eq__ is not object.__eq__ for each in modules)
        unset = [(owner, key) for owner in self._owners for key, each in owner.items() if each is None]
        self._unset, self._keys = map(list, zip(*unset)) if unset else ([], [])

    def changed(self) -> bool:
        try:
            return (self._may_be_equal or any(self._empty) or list(map(len, self._owners)) != self._lengths
                    or not all(map(eq, self._parents, self._children))
                    or not all(map(is_, map(getitem, self._unset, self._keys), repeat(None))))
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
        self._layouts: _core.Layouts | None = None
        self._reads: list[Callable[[list[Any]], Iterator[Any]]] = [partial(map, describe_unnamed)]
        if torch is not None and all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            each = torch.Tensor
            reads = [each.is_neg, *([each.is_conj] if any(tensor.is_complex() for tensor in tensors) else [])]
            try:
                self._layouts = _core.Layouts(tensors, each.__dlpack_c_exchange_api__)
            except (AttributeError, RuntimeError, BufferError):  # a torch before 2.10, or a type that DLPack does not have
                reads += [each.data_ptr, each.dtype.__get__, each.size, each.stride, each.get_device]
            self._reads = [partial(map, read) for read in reads]
            # A storage that was cut short may keep its address.
            self._reads.append(lambda tensors: map(torch.UntypedStorage.nbytes, map(each.untyped_storage, tensors)))
        self._seen = [list(read(tensors)) for read in self._reads]

    def same(self, tensors: list[Any]) -> bool:
        """Whether the tensors lie as they did. It keeps no values: many new objects would start garbage collections."""
        try:
            return ((self._layouts is None or self._layouts.same(tensors))
                    and all(all(map(eq, read(tensors), seen)) for read, seen in zip(self._reads, self._seen)))
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
