"""Finds out where a model's load_weights() copies a checkpoint's tensors, and whether it does anything else.

It calls load_weights() once with the checkpoint's tensors, and intercepts each torch operation. Nothing is written: a
copy into the model is compared with the model's present bytes, and recorded.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_aten = torch.ops.aten
_CONSTANTS = (_aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default)
_READ_VALUES = (_aten._local_scalar_dense.default, _aten.equal.default)
_CASTS = (_aten._to_copy.default, _aten.clone.default)


class Untraceable(Exception):
    """The model is not made of copies only; the text says why. Not a RuntimeError, which vLLM catches."""


@dataclass(frozen=True)
class Copied:
    """`into` is the part of the model's memory that holds a box of the checkpoint's tensor `name`, in its shape.

    begin: where the box begins. It is empty if this rank holds no element of the tensor.
    """

    name: str
    begin: tuple[int, ...]
    into: torch.Tensor


@dataclass(frozen=True)
class Trace:
    """shapes: of all tensors of the checkpoint. copies: at least one of each tensor."""

    shapes: dict[str, tuple[int, ...]]
    copies: list[Copied]


def trace(model: torch.nn.Module, checkpoint: Iterable[tuple[str, torch.Tensor]]) -> Trace:
    """Returns the copies by which load_weights() fills the parameters of `model`, which may be one rank's.

    The model must hold the weights of `checkpoint` already. Raises Untraceable if the loader computes with tensors, or
    reorders or omits them; if a part of a parameter comes neither from such a copy nor from a constant; or if the
    model's weights differ from the checkpoint's by even one bit.
    """
    watch = _Watch(model)

    def noted() -> Iterable[tuple[str, torch.Tensor]]:
        tensors = iter(checkpoint)
        while True:
            with _disable_current_modes():  # safetensors cannot read under a dispatch mode
                name, tensor = next(tensors, (None, None))
            if name is None:
                return
            watch.begin(name, tensor)
            yield name, tensor

    with torch.no_grad(), watch:
        model.load_weights(noted())
    if left := watch.shapes.keys() - {each.name for each in watch.copies}:
        raise Untraceable(f"the loader does not use {min(left)}")
    _check_covered(model, watch.copies, watch.constants)
    return Trace(watch.shapes, watch.copies)


class Untouched(TorchDispatchMode):
    """A context in which an operation on one of the model's parameters raises Untraceable."""

    def __init__(self, model: torch.nn.Module, what: str):
        super().__init__()
        self._ours, self._what = _storages(model.parameters()), what

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(_storage(each) in self._ours for each in _tensors((args, kwargs))):
            raise Untraceable(f"{self._what} computes with the weights ({func})")
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Piece:
    """A box of the checkpoint's tensor `name`, which has the type `dtype`. `tensor` holds it, contiguous, in any shape."""

    name: str
    dtype: torch.dtype
    begin: tuple[int, ...]
    shape: tuple[int, ...]
    tensor: torch.Tensor

    def box(self, view: torch.Tensor) -> _Piece | None:
        """The box that `view` shows of this piece, or None if it shows something else. It begins within `tensor`."""
        first = view.data_ptr() - self.tensor.data_ptr()
        if view.dtype != self.tensor.dtype or first % view.element_size():
            return None
        if first == 0 and view.is_contiguous() and view.numel() == self.tensor.numel():
            return self
        strides = _dense_strides(self.shape)
        if len(view.shape) != len(strides) or any(
                size > 1 and stride != dense for size, stride, dense in zip(view.shape, view.stride(), strides)):
            return None
        first, begin = first // view.element_size(), []
        for stride in strides:
            begin.append(first // stride)
            first %= stride
        if first or any(at + size > whole for at, size, whole in zip(begin, view.shape, self.shape)):
            return None
        return _Piece(self.name, self.dtype, tuple(a + b for a, b in zip(self.begin, begin)), tuple(view.shape), view)


class _Watch(TorchDispatchMode):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self._ours = _storages([*model.parameters(), *model.buffers()])
        # The checkpoint's tensors and what was cast from them. They are kept alive so that no address is reused.
        self._pieces: dict[int, _Piece] = {}
        self._addresses: list[int] = []  # sorted
        self._name = ""  # the tensor that the loader got last
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.copies: list[Copied] = []
        self.constants: list[torch.Tensor] = []

    def begin(self, name: str, tensor: torch.Tensor) -> None:
        """The loader gets this tensor next."""
        self._name, self.shapes[name] = name, tuple(tensor.shape)
        self._keep(_Piece(name, tensor.dtype, (0,) * tensor.ndim, tuple(tensor.shape), tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _READ_VALUES:
            raise Untraceable(f"the loader looks at values ({func})")
        arguments = func._schema.arguments
        written = [value for argument, value in zip(arguments, args) if argument.is_write] + [
            kwargs[argument.name] for argument in arguments if argument.is_write and argument.name in kwargs]
        if any(_storage(each) in self._ours for each in _tensors(written)):
            if func is _aten.copy_.default:
                self._copy(args[0], args[1])
            elif func in _CONSTANTS:
                self._constant(args[0], args[1] if len(args) > 1 else 0)
            else:
                raise Untraceable(f"the loader writes the model's tensors by {func}")
            return args[0]
        result = func(*args, **kwargs)
        if any(_storage(each) in self._ours for each in _tensors((args, kwargs))) and not all(
                _storage(each) in self._ours for each in _tensors(result)):
            raise Untraceable(f"the loader computes with the model's tensors ({func})")
        if func in _CASTS and (piece := self._piece(args[0])) and piece.dtype.is_floating_point \
                and result.is_floating_point():
            self._keep(_Piece(piece.name, piece.dtype, piece.begin, piece.shape, result))
        return result

    def _keep(self, piece: _Piece) -> None:
        if piece.tensor.numel() and piece.tensor.is_contiguous():
            insort(self._addresses, piece.tensor.data_ptr())
            self._pieces[piece.tensor.data_ptr()] = piece

    def _piece(self, tensor: torch.Tensor) -> _Piece | None:
        """The box of the checkpoint's tensor that `tensor` holds, in order; None if it holds no such box."""
        at = bisect_right(self._addresses, tensor.data_ptr()) - 1
        return self._pieces[self._addresses[at]].box(tensor) if at >= 0 and tensor.numel() else None

    def _copy(self, into: torch.Tensor, what: torch.Tensor) -> None:
        if into.numel() == 0:  # this rank has padding only
            self.copies.append(Copied(self._name, (), into))
            return
        if (piece := self._piece(what)) is None:
            raise Untraceable(f"the loader copies {list(what.shape)}, which is not a box of one tensor of the checkpoint")
        name, dtype = piece.name, piece.dtype
        if dtype != into.dtype and not (dtype.is_floating_point and into.is_floating_point()):
            raise Untraceable(f"the loader casts {name} from {dtype} to {into.dtype}")
        if into.shape != what.shape or not into.is_contiguous() or what.dtype not in (dtype, into.dtype):
            raise Untraceable(f"the loader copies {name} into {list(into.shape)} with strides {list(into.stride())}, "
                              f"from {what.dtype}")
        if not _same_bits(into, what.to(into.device, into.dtype)):
            raise Untraceable(f"the model does not hold the checkpoint's {name}")
        self.copies.append(Copied(name, piece.begin, into.detach().view(piece.shape)))

    def _constant(self, into: torch.Tensor, value: Any) -> None:
        if into.numel() == 0:
            return
        if not into.is_contiguous() or not bool((into == value).all()):
            raise Untraceable(f"the loader fills {list(into.shape)} with {value}, but the model holds other values")
        self.constants.append(into)


def _check_covered(model: torch.nn.Module, copies: list[Copied], constants: list[torch.Tensor]) -> None:
    """Raises Untraceable unless each byte of each parameter comes from exactly one copy or constant."""
    ranges = sorted((each.data_ptr(), each.data_ptr() + each.nbytes)
                    for each in [*(copy.into for copy in copies), *constants] if each.numel())
    for (_, end), (begin, _) in zip(ranges, ranges[1:]):
        if begin < end:
            raise Untraceable("the loader copies two tensors to one place")
    ends = dict(ranges)
    for name, parameter in model.named_parameters():
        end = parameter.data_ptr()
        while end in ends and end < parameter.data_ptr() + parameter.nbytes:
            end = ends[end]
        if not parameter.is_contiguous() or end != parameter.data_ptr() + parameter.nbytes:
            raise Untraceable(f"{name} is not made of the checkpoint's tensors only")


def _dense_strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for dim in reversed(range(len(shape) - 1)):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return strides


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {_storage(each) for each in tensors} - {0}


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(of: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(of) if isinstance(each, torch.Tensor)]
