"""Finds in a module, before it is sent or loaded, what this process has only a part of, and what would not be sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import BasculeError
from .names import hf_names
from .tensors import GATHER, GATHER_OR_SHARD, is_module, is_torch, named_places

# Classes that keep this rank's shards. They show whole tensors only for a time, and optimizers do not write these.
_SHARDED = {"FullyShardedDataParallel", "MegatronFSDP"}
_FSDP2 = "FSDPModule"  # the class that fully_shard() adds: it keeps DTensors
_SHOWN = 3  # names in an error
_logger = logging.getLogger("bascule")


def check_sendable(model: Any, named: Mapping[str, Any], *, sharded: bool = False) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if `model` or a tensor of it is sharded, or if not all would be sent.

    sharded: whether DTensors, and so FSDP2's modules, can be sent from their shards.
    """
    _refuse(model, _SHARDED, GATHER)
    if not sharded:
        _refuse(model, {_FSDP2}, GATHER_OR_SHARD)
    for name, tensor in named.items():
        if hasattr(tensor, "ds_id"):
            raise BasculeError(f"tensor {name}: DeepSpeed ZeRO-3 partitions it, and shows it whole only for a time; "
                               f"{GATHER}", "INVALID_ARGUMENT")
        if getattr(tensor, "_fsdp_flattened", False) or getattr(tensor, "_is_flat_param", False):
            raise BasculeError(f"tensor {name}: FullyShardedDataParallel keeps this rank's shard of it; {GATHER}",
                               "INVALID_ARGUMENT")
    if unsent := unsent_state(model):
        raise BasculeError(f"state_dict() of the model has {_some(unsent)}, neither parameters nor persistent buffers: "
                           "they would not be sent, and engines would compute with their own. If engines do not need "
                           "them, register a mapping, such as dict(model.named_parameters())", "INVALID_ARGUMENT")


def check_loadable(model: Any) -> None:
    """Raises BasculeError (INVALID_ARGUMENT) if an engine's model is sharded. Logs what versions do not change in it."""
    check_unsharded(model)
    if unsent := unsent_state(model):
        _logger.warning("state_dict() of the model has %s, neither parameters nor persistent buffers: versions do not "
                        "change them, so the model may compute something else than the trainer's", _some(unsent))


def check_unsharded(model: Any) -> None:
    """Raises BasculeError (INVALID_ARGUMENT), which names a part of the module that keeps only this rank's shards."""
    _refuse(model, {*_SHARDED, _FSDP2}, GATHER)


def is_fsdp2(module: Any) -> bool:
    """Whether fully_shard() was called with this module."""
    return any(base.__name__ == _FSDP2 for base in type(module).__mro__)


def _refuse(model: Any, classes: set[str], way_out: str) -> None:
    for name, part in model.named_modules() if is_module(model) else ():
        if sharded := classes.intersection(base.__name__ for base in type(part).__mro__):
            raise BasculeError(f"{f'part {name}' if name else 'the model'}: {min(sharded)} keeps this rank's shards of its "
                               f"parameters; {way_out}", "INVALID_ARGUMENT")


def unsent_state(model: Any) -> list[str]:
    """The names in a module's state_dict() that hold neither a parameter nor a persistent buffer.

    Quantised modules keep packed weights and scales there, and get_extra_state() puts its result there. It must not be
    sharded, except by FSDP2: its state_dict() could wait for other ranks. Raises BasculeError (INVALID_ARGUMENT) if state_dict() fails.
    """
    if not is_module(model):
        return []
    tensors = {hf_names(name): owner[key] for name, owner, key in named_places(model)}
    try:
        state = model.state_dict()
    except Exception as error:
        raise BasculeError("state_dict() of the model fails, so it is not known what else it holds: "
                           f"{type(error).__name__}: {error}; give a mapping of its tensors instead",
                           "INVALID_ARGUMENT") from error
    addresses = set(map(_address, tensors.values())) - {None}
    return [name for name, value in state.items() if hf_names(name) not in tensors and not _is_known(value, addresses)]


def _is_known(value: Any, addresses: set[Any]) -> bool:
    """Whether a value holds nothing, or is another name of a tensor."""
    return value is None or (is_torch(value) and (value.numel() == 0 or _address(value) in addresses))


def _address(tensor: Any) -> Any:
    try:
        return tensor.data_ptr(), tensor.shape
    except (RuntimeError, ValueError):  # it has no memory, or belongs to a lazy module
        return None


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
