"""What bascule.verl sends for a sharded actor: the shards that verl's training engines export, without a gather."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from verl.workers.engine import EngineRegistry

from .errors import BasculeError
from .sharded import Held, box_of, held_of


class Export:
    """What get_per_tensor_param() returns after offer_shards(). It gathers only if it is iterated."""

    def __init__(self, engine: Any, gather: Callable[[], Any]):
        self.engine, self._gather = engine, gather

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._gather())


def offer_shards() -> None:
    """Makes verl's training engines say, with the tensors that they gather, who they are.

    verl gives other checkpoint engines than its own only the gathered ones. Calls with arguments, which are not for a
    checkpoint engine, are unchanged.
    """
    for engines in (each for kinds in EngineRegistry._engines.values() for each in kinds.values()):
        for engine in set(engines.values()):
            if not hasattr(engine.get_per_tensor_param, "_before_bascule"):
                engine.get_per_tensor_param = _with_engine(engine.get_per_tensor_param)


def _with_engine(get_per_tensor_param: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_per_tensor_param)
    def get(self: Any, **options: Any) -> Any:
        if options:
            return get_per_tensor_param(self, **options)
        return Export(self, lambda: get_per_tensor_param(self)[0]), None

    get._before_bascule = get_per_tensor_param
    return get


def shards_of(weights: Any) -> Callable[[], tuple[dict[str, Any], dict[str, Held]]]:
    """A `look` for HeldBoxes. Each call is a pass of the engine's get_per_tensor_param_shard().

    Raises BasculeError (INVALID_ARGUMENT) if the weights do not come from a training engine of verl.
    """
    engine = getattr(weights, "engine", weights)
    if not hasattr(engine, "get_per_tensor_param_shard"):
        raise BasculeError("sharded: expected the weights of one of verl's training engines, which export their shards, found "
                           f"{type(weights).__name__}; without sharded=True, rank 0 sends gathered tensors", "INVALID_ARGUMENT")

    def look() -> tuple[dict[str, Any], dict[str, Held]]:
        tensors, held = {}, {}
        for name, piece, spec in engine.get_per_tensor_param_shard()[0]:
            place = _place(name, spec)
            tensors[name] = piece.detach().reshape(place[2])
            held[name] = held_of(name, tensors[name], place)
        return tensors, held

    return look


def _place(name: str, spec: Any) -> tuple[list[int], list[int], list[int]]:
    """The parameter's shape, and offset and shape of this rank's box of it."""
    shape, place = list(spec.full_shape), spec.place
    if spec.to_hf_chunk is not None:
        raise BasculeError(f"tensor {name}: verl makes checkpoint tensors from it only after a gather; use sharded=False",
                           "UNIMPLEMENTED")
    if hasattr(place, "global_offset"):
        return list(place.full_shape), list(place.global_offset), list(place.local_shape)
    if place:
        raise BasculeError(f"tensor {name}: verl gives its place as number {place} in a flat tensor, and it may be no box; use "
                           "sharded=False", "UNIMPLEMENTED")
    if spec.mesh is None:
        return shape, [0] * len(shape), shape
    sizes = [spec.mesh.size(dim) for dim in range(spec.mesh.ndim)]
    return shape, *box_of(name, shape, spec.placements, sizes, spec.mesh.get_coordinate())
