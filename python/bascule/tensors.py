"""Describes tensors of torch, numpy and other libraries to the transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any

from . import _core
from ._torch import imported
from .errors import BasculeError

HOST = -1  # used as a device number
_DIGITS = 9  # of a GPU's number, at most

# What to do with a tensor of which this process has only a part.
GATHER = "register specs of the whole tensors, and stream() each one gathered (Sharded weights in docs/guide/python.md)"
GATHER_OR_SHARD = f"make a Sender(…, sharded=True) on every rank; or {GATHER}"

# From the names that torch and numpy (with ml_dtypes) share to the names that safetensors uses.
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4_X2", "complex64": "C64",
}  # fmt: skip
_NAMES = {name: dtype for dtype, name in _DTYPES.items()}


@dataclass(frozen=True)
class TensorSpec:
    """Describes a tensor without its elements: one that a trainer gathers later, or that a sender offers to `accept`.

    name: unique in the model. dtype: a torch or numpy type, or its name ("bfloat16"). shape: the whole tensor's.
    device: where the slot will lie ("cuda:0" for cuda-ipc); all specs must name the same device. Tensors may come
    from any device.
    """

    name: str
    dtype: Any
    shape: Sequence[int]
    device: Any = "cpu"


def dtype_name(dtype: Any) -> str:
    """The safetensors name of a type: "BF16" for torch.bfloat16, numpy's bfloat16, "bfloat16" or "BF16".

    Raises BasculeError (INVALID_ARGUMENT) if tensors of this type cannot be sent.
    """
    name = getattr(dtype, "name", None) or str(dtype)
    if isinstance(dtype, type):  # numpy.float32 itself
        name = dtype.__name__.rstrip("_")
    name = name.removeprefix("torch.")
    if name in _DTYPES.values():
        return name
    if name not in _DTYPES:
        raise BasculeError(f"no tensors of the type {dtype} can be sent; expected one of {', '.join(_DTYPES)}",
                           "INVALID_ARGUMENT")
    return _DTYPES[name]


_name_of = lru_cache(dtype_name)  # for types of tensors, which can be hashed


def offered_spec(name: str, dtype: str, shape: Iterable[int]) -> TensorSpec:
    """Describes a sender's tensor, whose type has a name of safetensors. Its dtype is then the name that numpy and torch use."""
    return TensorSpec(name, _NAMES[dtype], tuple(shape))


def is_torch(tensor: Any) -> bool:
    """Whether `tensor` is a torch tensor. Does not import torch."""
    torch = imported()
    return torch is not None and isinstance(tensor, torch.Tensor)


def is_module(model: Any) -> bool:
    """Whether `model` is a torch module. Does not import torch."""
    torch = imported()
    return torch is not None and isinstance(model, torch.nn.Module)


@contextmanager
def naming(name: str, tensor: Any) -> Iterator[None]:
    """Adds the tensor's name to errors in its `with` block. An error of the tensor itself becomes INVALID_ARGUMENT."""
    try:
        yield
    except _OF_TENSORS as error:
        raise _named(name, tensor, error) from _cause(error)


_OF_TENSORS = (BasculeError, RuntimeError, TypeError, ValueError, BufferError)


def _named(name: str, tensor: Any, error: Exception) -> BasculeError:
    if isinstance(error, BasculeError):
        return BasculeError(f"tensor {name}: {error}", error.code)
    return BasculeError(f"tensor {name}: {type(tensor).__name__} does not give its elements' address: "  # none, or several
                        f"{type(error).__name__}: {error}", "INVALID_ARGUMENT")


def _cause(error: Exception) -> Exception | None:
    return None if isinstance(error, BasculeError) else error


def describe(name: str, tensor: Any) -> tuple[str, list[int], list[int], int, int]:
    """Returns dtype, shape, strides in elements, address and device (HOST or a GPU's number) of one tensor.

    Raises BasculeError (INVALID_ARGUMENT), which names a tensor that cannot be sent and says why.
    """
    try:  # not naming(), whose objects would take longer than this
        return describe_unnamed(tensor)
    except _OF_TENSORS as error:
        raise _named(name, tensor, error) from _cause(error)


def describe_unnamed(tensor: Any) -> tuple[str, list[int], list[int], int, int]:
    """Like describe(), for use within naming()."""
    if is_torch(tensor):
        return _describe_torch(tensor)
    if type(tensor).__module__ == "numpy":
        return _describe_numpy(tensor)
    if hasattr(tensor, "__dlpack__"):
        refuse_mask(tensor)
        return _core.describe(tensor)
    raise not_a_tensor(tensor)


def not_a_tensor(found: Any) -> BasculeError:
    """The error for anything else in a tensor's place, for use within naming()."""
    return BasculeError("expected a torch tensor, a numpy array, or an object with __dlpack__, found "
                        f"{type(found).__name__}", "INVALID_ARGUMENT")


def refuse_mask(tensor: Any) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if `tensor` is a masked array of numpy."""
    if any(base.__name__ == "MaskedArray" for base in type(tensor).__mro__):
        raise BasculeError("it is a masked array, whose mask would not be sent; send its filled(…) or its data",
                           "INVALID_ARGUMENT")


def check_elements(tensor: Any) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if a torch tensor's elements do not lie, whole, in its own memory."""
    torch = imported()
    kind = type(tensor)
    if torch.nn.parameter.is_lazy(tensor):
        raise BasculeError("it belongs to a lazy module and has no shape yet; call the model once first",
                           "INVALID_ARGUMENT")
    if kind.__name__ == "DTensor":
        raise BasculeError(f"a DTensor has only its shard here; {GATHER_OR_SHARD}", "INVALID_ARGUMENT")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise BasculeError(f"a {kind.__name__} keeps its elements in other tensors; send these, or a plain tensor made "
                           "of them", "INVALID_ARGUMENT")
    if hasattr(tensor, "ds_shape") and tuple(tensor.shape) != tuple(tensor.ds_shape):
        raise BasculeError(f"it is {list(tensor.shape)}, a placeholder of DeepSpeed ZeRO-3 for {list(tensor.ds_shape)}; "
                           f"{GATHER}", "INVALID_ARGUMENT")
    if tensor.layout is not torch.strided:
        raise BasculeError(f"it is {tensor.layout} on {tensor.device}; expected a strided tensor, such as its to_dense()",
                           "INVALID_ARGUMENT")
    if tensor.is_meta:
        raise BasculeError("it is on the device meta, and has no elements; load or gather it first", "INVALID_ARGUMENT")
    span = tensor.numel()
    if span and not tensor.is_contiguous():
        span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    held, needed = tensor.untyped_storage().nbytes(), (tensor.storage_offset() + span) * tensor.element_size()
    if span and needed > held:
        freed = "it was freed, as sharding does between two uses" if held == 0 else "it was cut short"
        raise BasculeError(f"its storage has {held} bytes, and its shape needs {needed}: {freed}", "INVALID_ARGUMENT")


def _describe_torch(tensor: Any) -> tuple[str, list[int], list[int], int, int]:
    check_elements(tensor)
    if tensor.device.type not in ("cpu", "cuda"):
        raise BasculeError(f"it is on {tensor.device}; expected a tensor on cpu or cuda", "INVALID_ARGUMENT")
    if tensor.is_neg():
        raise BasculeError("its elements are negated when they are read; send its resolve_neg()", "INVALID_ARGUMENT")
    if tensor.is_conj():
        raise BasculeError("its elements are conjugated when they are read; send its resolve_conj()",
                           "INVALID_ARGUMENT")
    device = HOST if tensor.device.type == "cpu" else tensor.device.index
    return _name_of(tensor.dtype), list(tensor.shape), list(tensor.stride()), tensor.data_ptr(), device


def _describe_numpy(array: Any) -> tuple[str, list[int], list[int], int, int]:
    if not hasattr(type(array), "ctypes"):
        raise BasculeError(f"a {type(array).__name__} does not have its own memory; make it an array (numpy.asarray)",
                           "INVALID_ARGUMENT")
    name, size = _name_of(array.dtype), array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise BasculeError(f"its strides {array.strides} are not multiples of its elements' {size} bytes",
                           "INVALID_ARGUMENT")
    if not array.dtype.isnative:
        raise BasculeError("its bytes are not in this machine's order; send its astype(dtype.newbyteorder('='))",
                           "INVALID_ARGUMENT")
    strides = [stride // size for stride in array.strides]
    return name, list(array.shape), strides, array.__array_interface__["data"][0], HOST


def device_number(device: Any) -> int:
    """The number of "cpu" (HOST), "cuda" (0), "cuda:1", or a torch.device. Raises BasculeError (INVALID_ARGUMENT)."""
    text = str(device)
    if text == "cpu":
        return HOST
    kind, _, number = text.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()) or len(number) > _DIGITS:
        raise BasculeError(f'device: expected "cpu" or "cuda:N", found {device!r}', "INVALID_ARGUMENT")
    return int(number or 0)


def device_of(specs: Sequence[TensorSpec]) -> int:
    """The number of the specs' device. Raises BasculeError (INVALID_ARGUMENT) if they name several."""
    numbers = {device_number(spec.device): spec.name for spec in specs}
    if len(numbers) > 1:
        raise BasculeError(f"tensors {' and '.join(numbers.values())} name different devices; expected one for all",
                           "INVALID_ARGUMENT")
    return next(iter(numbers), HOST)


def wait_for_stream(device: int) -> None:
    """Blocks until torch's current stream on a GPU has done its work. Does nothing on the host, or without torch."""
    torch = imported()
    if device != HOST and torch is not None:
        torch.cuda.current_stream(device).synchronize()


def current_stream(device: int) -> int:
    """The handle of torch's current stream on a GPU; 0 on the host, or without torch."""
    torch = imported()
    return 0 if device == HOST or torch is None else torch.cuda.current_stream(device).cuda_stream


def describe_all(named: Mapping[str, Any]) -> _core.Tensors:
    """Describes tensors to the transport, at their present addresses."""
    return of_described(list(named), [describe(name, tensor) for name, tensor in named.items()])


def of_described(names: list[str], described: list[tuple[str, list[int], list[int], int, int]]) -> _core.Tensors:
    """The same, given describe() of each tensor."""
    dtypes, shapes, strides, addresses, devices = map(list, zip(*described)) if described else ([], [], [], [], [])
    device = next((each for each in devices if each != HOST), HOST)
    return _core.Tensors(names, dtypes, shapes, strides, addresses, devices, current_stream(device))


def describe_specs(specs: Iterable[TensorSpec]) -> _core.Tensors:
    """Describes tensors without addresses. Raises BasculeError (INVALID_ARGUMENT), which names the tensor."""
    specs = list(specs)
    for spec in specs:
        check_name(spec.name)
    count = len(specs)
    return _core.Tensors([spec.name for spec in specs], [_dtype_of(spec) for spec in specs],
                         [_shape_of(spec) for spec in specs], [[]] * count, [0] * count, [HOST] * count, 0)


def _dtype_of(spec: TensorSpec) -> str:
    try:
        return dtype_name(spec.dtype)
    except BasculeError as error:
        raise BasculeError(f"tensor {spec.name}: {error}", error.code) from None


def _shape_of(spec: TensorSpec) -> list[int]:
    try:
        shape = list(map(index, spec.shape))
        if all(size.bit_length() < 64 for size in shape):
            return shape
    except TypeError:
        pass
    raise BasculeError(f"tensor {spec.name}: expected a shape of whole numbers below 2^63, found {spec.shape!r}",
                       "INVALID_ARGUMENT")


def named_places(model: Any) -> Iterable[tuple[str, dict, str]]:
    """Yields name, dictionary and key of each parameter and persistent buffer of a module, including tied ones."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        dot = prefix + "." if prefix else ""
        for key, tensor in module._parameters.items():
            if tensor is not None:
                yield dot + key, module._parameters, key
        for key, tensor in module._buffers.items():
            if tensor is not None and key not in module._non_persistent_buffers_set:
                yield dot + key, module._buffers, key


def check_name(name: Any) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if `name` is not a string, or not valid Unicode."""
    if not isinstance(name, str):
        raise BasculeError(f"tensor {name!r}: expected a name, found {type(name).__name__}", "INVALID_ARGUMENT")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BasculeError(f"tensor {name!r}: its name cannot be written in UTF-8: {error}",
                           "INVALID_ARGUMENT") from None


def travels_as(name: Any, rename: Callable[[str], str] | None) -> str:
    """The name as it is sent. Raises BasculeError (INVALID_ARGUMENT) if that name, or `name`, is not valid."""
    check_name(name)
    if rename is None:
        return name
    if not callable(rename):
        raise BasculeError(f"rename: expected a function of a tensor's name, or None, found {rename!r:.200}",
                           "INVALID_ARGUMENT")
    travels = rename(name)
    check_name(travels)
    return travels


def renamed(model: Any, rename: Callable[[str], str] | None) -> dict[str, tuple[Any, str]]:
    """Maps each name that is sent to its tensor's place in the module or mapping: the container, and the key there.

    Raises BasculeError (INVALID_ARGUMENT) if two tensors get one name.
    """
    if not is_module(model) and not isinstance(model, Mapping):
        raise BasculeError(f"expected a module or a mapping of names to tensors, found {type(model).__name__}",
                           "INVALID_ARGUMENT")
    places = named_places(model) if is_module(model) else ((name, model, name) for name in model)
    found: dict[str, tuple[Any, str]] = {}
    origin: dict[str, str] = {}
    for name, owner, key in places:
        travels = travels_as(name, rename)
        if travels in found:
            raise BasculeError(f"tensors {origin[travels]} and {name} would both be sent as {travels}",
                               "INVALID_ARGUMENT")
        found[travels] = owner, key
        origin[travels] = name
    return found


def tensors_of(model: Any, rename: Callable[[str], str] | None) -> dict[str, Any]:
    """Returns the present tensors of a module or a mapping, keyed by the names under which they are sent."""
    return {name: owner[key] for name, (owner, key) in renamed(model, rename).items()}
