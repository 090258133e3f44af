"""What a trainer's rank holds of a source of vLLM 0.33: the pieces of iter_local(), as boxes of the whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ..errors import BasculeError
from ..names import hf_names
from ..sharded import Held, box_of, held_of
from ..tensors import HOST, dtype_name, travels_as


def pieces_of(source: Any, rank: int) -> Callable[[], tuple[dict[str, Any], dict[str, Held]]]:
    """A `look` for HeldBoxes. Each call is a pass of iter_local(), in which all owners of a parameter take part.

    Raises BasculeError (UNIMPLEMENTED) if the source has no iter_local().
    """
    if not hasattr(source, "implements_iter_local") or not source.implements_iter_local():
        raise BasculeError(f"sharded: {type(source).__name__} does not implement iter_local(), which vLLM's sources have since "
                           "0.33; without sharded=True, rank 0 streams whole tensors", "UNIMPLEMENTED")

    def look() -> tuple[dict[str, Any], dict[str, Held]]:
        pieces = dict(source.iter_local())
        return pieces, {travels_as(each.name, hf_names): _held(each, pieces.get(each.name), rank) for each in source.metadata}

    return look


def _held(declared: Any, piece: Any, rank: int) -> Held:
    """declared: the parameter's metadata. piece: what iter_local() yielded for it on this rank; None: nothing."""
    name, dtype = declared.name, dtype_name(declared.dtype)
    shape, offset, box = _place(declared, rank)
    if piece is not None:
        held = held_of(name, piece, (shape, offset, box))
        if held.dtype != dtype:
            raise BasculeError(f"tensor {name}: the source declares {dtype}, and iter_local() yields {held.dtype}",
                               "INVALID_ARGUMENT")
        return held
    if prod(box):
        raise BasculeError(f"tensor {name}: the source declares that rank {rank} holds {box} of it, and iter_local() did not "
                           "yield it", "INVALID_ARGUMENT")
    return Held(dtype, shape, offset, box, [0] * len(box), 0, HOST)


def _place(declared: Any, rank: int) -> tuple[list[int], list[int], list[int]]:
    """The parameter's shape, and offset and shape of this rank's box of it."""
    shape, owners = list(declared.shape), declared.owners
    whole, empty = (shape, [0] * len(shape), shape), (shape, [0] * len(shape), [0] * max(len(shape), 1))
    if owners is None:
        return whole
    if rank not in owners:
        return empty
    if declared.placements is None:
        return whole
    coordinate, index = [], owners.index(rank)
    for size in reversed(declared.mesh_shape):  # row by row
        coordinate.insert(0, index % size)
        index //= size
    return shape, *box_of(declared.name, shape, declared.placements, list(declared.mesh_shape), coordinate)
