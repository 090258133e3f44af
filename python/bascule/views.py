"""Shows slots' memory as torch tensors if this process has imported torch, else as numpy arrays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ._torch import imported
from .errors import BasculeError
from .tensors import check_elements, describe_unnamed, is_torch, naming, not_a_tensor, refuse_mask


def view(array: Any) -> Any:
    """Returns a tensor over the memory of an object with __dlpack__, or the object itself if numpy lacks its type."""
    torch = imported()
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
    """Returns view() of each array."""
    return {name: view(array) for name, array in arrays.items()}


def copy_into(place: Any, tensor: Any, name: str) -> None:
    """Copies a tensor's elements into memory of the same shape. Floating-point types are cast if they differ.

    Raises BasculeError: INVALID_ARGUMENT names the tensor if its kind, shape or type does not fit, or if its elements
    do not lie, whole, in its memory; UNIMPLEMENTED if the type needs torch, which is not imported.
    """
    torch = imported()
    in_torch = torch is not None and isinstance(place, torch.Tensor)
    with naming(name, tensor):
        if not hasattr(tensor, "shape"):
            raise not_a_tensor(tensor)
        source = _torch_of(torch, tensor) if in_torch else _numpy_of(tensor, place)
        if tuple(place.shape) != tuple(source.shape):
            raise BasculeError(f"it has the shape {list(source.shape)}; it was registered as {list(place.shape)}",
                               "INVALID_ARGUMENT")
        if source.dtype != place.dtype and not (_is_floating(source) and _is_floating(place)):
            raise BasculeError(f"it is {source.dtype}; it was registered as {place.dtype}", "INVALID_ARGUMENT")
    if in_torch:
        place.copy_(source)
        narrowed = place.dtype == torch.float16 != source.dtype and bool(torch.isinf(place).any())
    else:
        import numpy

        with numpy.errstate(over="ignore"):
            numpy.copyto(place, source, casting="unsafe")
        narrowed = place.dtype == numpy.float16 != source.dtype and bool(numpy.isinf(place).any())
    if narrowed:
        _logger.warning("tensor %s has elements that are infinite in float16, whose largest number is 65,504", name)


def _torch_of(torch: Any, tensor: Any) -> Any:
    if isinstance(tensor, torch.Tensor):
        check_elements(tensor)
        return tensor.detach()
    if type(tensor).__module__ != "numpy":
        describe_unnamed(tensor)  # refuses what torch would not survive
        return torch.from_dlpack(tensor)
    import numpy

    try:
        return torch.from_numpy(numpy.ascontiguousarray(tensor).reshape(tensor.shape))  # else a scalar gets a dimension
    except TypeError as error:
        raise BasculeError(str(error), "INVALID_ARGUMENT") from None


def _numpy_of(tensor: Any, place: Any) -> Any:
    import numpy

    if not isinstance(place, numpy.ndarray):
        raise BasculeError("numpy has no type for its elements; import torch first", "UNIMPLEMENTED")
    refuse_mask(tensor)
    return numpy.asarray(tensor)


def _is_floating(tensor: Any) -> bool:
    return tensor.is_floating_point() if is_torch(tensor) else tensor.dtype.kind == "f"
