"""Shows slots' memory as torch tensors if this process has imported torch, else as numpy arrays."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from .errors import BasculeError
from .tensors import describe


def view(array: Any) -> Any:
    """Returns a tensor over the memory of an object with __dlpack__, or the object itself if numpy lacks its type."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.from_dlpack(array)
    import numpy

    try:
        return numpy.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError):  # bfloat16 and float8
        return array


_logger = logging.getLogger("bascule")
writable = view  # for arrays that may be written


def views(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """view() of each array."""
    return {name: view(array) for name, array in arrays.items()}


def _torch_of(torch: Any, tensor: Any, name: str) -> Any:
    if type(tensor).__module__ != "numpy":
        describe(name, tensor)  # refuses what torch would not survive
        return torch.from_dlpack(tensor)
    import numpy

    try:
        return torch.from_numpy(numpy.ascontiguousarray(tensor).reshape(tensor.shape))  # else a scalar gets a dimension
    except TypeError as error:
        raise BasculeError(f"tensor {name}: {error}", "INVALID_ARGUMENT") from None


def copy_into(place: Any, tensor: Any, name: str) -> None:
    """Copies a tensor's elements into memory of the same shape. Floating-point types are cast if they differ.

    Raises BasculeError: INVALID_ARGUMENT names the tensor if its kind, shape or type does not fit; UNIMPLEMENTED if the
    type needs torch, which is not imported.
    """
    if not hasattr(tensor, "shape"):
        raise BasculeError(f"tensor {name}: expected a torch tensor, a numpy array, or an object with __dlpack__, "
                           f"found {type(tensor).__name__}", "INVALID_ARGUMENT")
    if tuple(place.shape) != tuple(tensor.shape):
        raise BasculeError(f"tensor {name} has the shape {list(tensor.shape)}; it was registered as "
                           f"{list(place.shape)}", "INVALID_ARGUMENT")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(place, torch.Tensor):
        source = tensor.detach() if isinstance(tensor, torch.Tensor) else _torch_of(torch, tensor, name)
        if source.dtype != place.dtype and not (source.is_floating_point() and place.is_floating_point()):
            raise BasculeError(f"tensor {name} is {source.dtype}; it was registered as {place.dtype}",
                               "INVALID_ARGUMENT")
        place.copy_(source)
        if place.dtype == torch.float16 and source.dtype != torch.float16 and torch.isinf(place).any():
            _logger.warning("tensor %s has elements that are infinite in float16, whose largest number is 65,504", name)
        return
    import numpy

    if not isinstance(place, numpy.ndarray):
        raise BasculeError(f"tensor {name}: numpy has no type for its elements; import torch first", "UNIMPLEMENTED")
    source = numpy.asarray(tensor)
    if source.dtype != place.dtype and not (source.dtype.kind == "f" and place.dtype.kind == "f"):
        raise BasculeError(f"tensor {name} is {source.dtype}; it was registered as {place.dtype}", "INVALID_ARGUMENT")
    with numpy.errstate(over="ignore"):
        numpy.copyto(place, source, casting="unsafe")
    if place.dtype == numpy.float16 and source.dtype != numpy.float16 and numpy.isinf(place).any():
        _logger.warning("tensor %s has elements that are infinite in float16, whose largest number is 65,504", name)
