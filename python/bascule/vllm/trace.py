"""Finds out where a model's load_weights() copies a checkpoint's tensors, and whether it does anything else.

It calls load_weights() once with the checkpoint's tensors, and intercepts each torch operation. Nothing is written: a
copy into the model is compared with the model's present bytes, and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """The model is not made of whole copies only; the text says why. Not a RuntimeError, which vLLM catches."""


@dataclass(frozen=True)
class Copied:
    """`into` is the part of the model's memory that holds all of the checkpoint's tensor `name`, in its shape."""

    name: str
    into: torch.Tensor


def trace(model: torch.nn.Module, checkpoint: Iterable[tuple[str, torch.Tensor]]) -> list[Copied]:
    """Returns the copies by which load_weights() fills the parameters of `model`.

    The model must hold the weights of `checkpoint` already. Raises Untraceable if the loader computes with tensors, or
    cuts, reorders or omits them; if a part of a parameter comes neither from such a copy nor from a constant; or if the
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
            watch.sources[tensor.data_ptr()] = name, tensor
            watch.names.add(name)
            yield name, tensor

    with torch.no_grad(), watch:
        model.load_weights(noted())
    if left := watch.names.difference(each.name for each in watch.copies):
        raise Untraceable(f"the loader does not use {min(left)}")
    _check_covered(model, watch.copies, watch.constants)
    return watch.copies


class Untouched(TorchDispatchMode):
    """A context in which an operation on one of the model's parameters raises Untraceable."""

    def __init__(self, model: torch.nn.Module, what: str):
        super().__init__()
        self._ours, self._what = _storages(model.parameters()), what

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(_storage(each) in self._ours for each in _tensors((args, kwargs))):
            raise Untraceable(f"{self._what} computes with the weights ({func})")
        return func(*args, **(kwargs or {}))


class _Watch(TorchDispatchMode):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self._ours = _storages([*model.parameters(), *model.buffers()])
        # By address: the checkpoint's tensors and their casts, which are kept alive so that no address is reused.
        self.sources: dict[int, tuple[str, torch.Tensor]] = {}
        self._casts: list[torch.Tensor] = []
        self.names: set[str] = set()
        self.copies: list[Copied] = []
        self.constants: list[torch.Tensor] = []

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
        if func in _CASTS and (source := self._source(args[0])) and source[1].is_floating_point() \
                and result.is_floating_point():
            self._casts.append(result)
            self.sources[result.data_ptr()] = source
        return result

    def _source(self, tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        """The checkpoint's tensor that `tensor` holds whole and in order, or None."""
        source = self.sources.get(tensor.data_ptr())
        return source if source and tensor.is_contiguous() and tensor.numel() == source[1].numel() else None

    def _copy(self, into: torch.Tensor, what: torch.Tensor) -> None:
        if into.numel() == 0:
            return
        if (source := self._source(what)) is None:
            raise Untraceable(f"the loader copies {list(what.shape)}, which is not a whole tensor of the checkpoint")
        name, tensor = source
        casts = tensor.dtype != into.dtype
        if casts and not (tensor.is_floating_point() and into.is_floating_point()):
            raise Untraceable(f"the loader casts {name} from {tensor.dtype} to {into.dtype}")
        if into.shape != what.shape or not into.is_contiguous() or what.dtype not in (tensor.dtype, into.dtype):
            raise Untraceable(f"the loader copies {name} into {list(into.shape)} with strides {list(into.stride())}, "
                              f"from {what.dtype}")
        if not _same_bits(into, what.to(into.device, into.dtype)):
            raise Untraceable(f"the model does not hold the checkpoint's {name}")
        self.copies.append(Copied(name, into.detach().view(tensor.shape)))

    def _constant(self, into: torch.Tensor, value: Any) -> None:
        if into.numel() == 0:
            return
        if not into.is_contiguous() or not bool((into == value).all()):
            raise Untraceable(f"the loader fills {list(into.shape)} with {value}, but the model holds other values")
        self.constants.append(into)


def _check_covered(model: torch.nn.Module, copies: list[Copied], constants: list[torch.Tensor]) -> None:
    """Raises Untraceable unless each byte of each parameter comes from exactly one copy or constant."""
    ranges = sorted((each.data_ptr(), each.data_ptr() + each.nbytes)
                    for each in [*(copy.into for copy in copies), *constants])
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


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def _storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {_storage(each) for each in tensors} - {0}


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(of: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(of) if isinstance(each, torch.Tensor)]
