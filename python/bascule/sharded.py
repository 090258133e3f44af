"""What this rank holds of a sharded model: boxes of DTensors, and whole tensors that every rank has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from . import _core
from ._torch import imported
from .errors import BasculeError
from .modules import check_sendable, is_fsdp2
from .names import refuse_adapters
from .tensors import HOST, current_stream, describe, is_module, is_torch, tensors_of

# What to do with a tensor that cannot be sent from its shards.
_GATHER = "send it gathered: stream(full_tensor()), as Sharded weights in docs/guide/python.md shows"


def rank_and_ranks() -> tuple[int, int]:
    """This process's rank in torch's default process group, and the group's size.

    Raises BasculeError (FAILED_PRECONDITION) if there is no group.
    """
    torch = imported()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise BasculeError("sharded=True: this process's rank comes from torch.distributed, which has no process group; "
                           "call torch.distributed.init_process_group() before", "FAILED_PRECONDITION")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class Held(NamedTuple):
    """A tensor of the model: type and shape of the whole, and this rank's box of it."""

    dtype: str
    shape: list[int]
    offset: list[int]
    box: list[int]  # its shape
    strides: list[int]
    address: int
    device: int  # HOST or a GPU's number


class HeldBoxes:
    """Keeps this rank's part of a model alive, and finds before each send where it lies.

    look: returns, by name, the tensors of this process that are sent or of which boxes are sent, and what they hold.
    """

    def __init__(self, look: Callable[[], tuple[dict[str, Any], dict[str, Held]]]):
        self._look = look
        self._tensors, self._held = look()
        self._before: list[Any] = []  # alive until the core knows their successors' addresses
        held = list(self._held.values())
        boxes = [(i, each) for i, each in enumerate(held) if prod(each.box)]
        self.shards = _core.Shards(list(self._held), [each.dtype for each in held], [each.shape for each in held],
                                   [i for i, _ in boxes], [each.offset for _, each in boxes],
                                   [each.box for _, each in boxes], [each.strides for _, each in boxes],
                                   [each.address for _, each in boxes], self._device())
        self.shards.set_stream(current_stream(self._device()))

    def _device(self) -> int:
        """Where all boxes with elements lie. Raises BasculeError (INVALID_ARGUMENT) if they lie in several places."""
        places = {each.device: name for name, each in self._held.items() if prod(each.box)}
        if len(places) > 1:
            (one, first), (other, second) = list(places.items())[:2]
            raise BasculeError(f"tensor {first} is in {_place(one)} and {second} in {_place(other)}; a rank sends from one "
                               "place", "INVALID_ARGUMENT")
        return next(iter(places), HOST)

    def follow(self) -> None:
        """Tells the core which boxes lie elsewhere now.

        If a tensor is gone, new, or of another type, shape, placement or device, the next send raises BasculeError
        (INVALID_ARGUMENT), which names it, on all ranks.
        """
        try:
            self._follow()
        except BasculeError as error:
            self.shards.refuse(str(error))
        else:
            self.shards.refuse("")

    def _follow(self) -> None:
        tensors, held = self._look()
        if more := sorted(held.keys() - self._held.keys()):
            raise BasculeError(f"tensor {more[0]} is in the model and was not registered; make another sender for it",
                               "INVALID_ARGUMENT")
        for name, before in self._held.items():
            if name not in held:
                raise BasculeError(f"tensor {name} was registered and is no longer in the model", "INVALID_ARGUMENT")
            if held[name][:4] != before[:4]:
                raise BasculeError(f"tensor {name}: this rank holds {_shown(held[name])} of it; it was registered with "
                                   f"{_shown(before)}, and this must not change", "INVALID_ARGUMENT")
            if prod(before.box) and held[name].device != before.device:
                raise BasculeError(f"tensor {name} is in {_place(held[name].device)}; it was registered in "
                                   f"{_place(before.device)}, and must stay there", "INVALID_ARGUMENT")
        # A signal may end this anywhere: the next call then tells all of it again, and nothing is freed before.
        self._before += self._tensors.values()
        self._tensors = tensors
        for i, (name, before) in enumerate(self._held.items()):
            now = held[name]
            if prod(now.box) and now != before:
                self.shards.move(i, 0, now.address, now.strides)
        self._held, self._before = {name: held[name] for name in self._held}, []
        self.shards.set_stream(current_stream(self._device()))


class HeldModel(HeldBoxes):
    """This rank's part of a module or a mapping with DTensors. No collective runs."""

    def __init__(self, model: Any, rename: Callable[[str], str] | None):
        if not is_module(model) and not isinstance(model, Mapping):
            raise BasculeError("register_model: with sharded=True, expected a module or a mapping of names to tensors, found "
                               f"{type(model).__name__}", "INVALID_ARGUMENT")
        if is_module(model):
            refuse_adapters(model, rename, "merge it first, or register a mapping of the other tensors; for engines with the "
                            "same PEFT model, rename=None")
        self._model, self._rename = model, rename
        super().__init__(self._look_at_model)
        check_sendable(model, self._tensors, sharded=True)

    def _look_at_model(self) -> tuple[dict[str, Any], dict[str, Held]]:
        # FSDP2 shows gathered parameters for a time, for example after an evaluation. Optimizers write only the shards.
        for module in self._model.modules() if is_module(self._model) else ():
            if is_fsdp2(module):
                module.reshard()
        tensors: dict[str, Any] = {}
        held: dict[str, Held] = {}
        for name, tensor in tensors_of(self._model, self._rename).items():
            tensors[name], held[name] = _held(name, tensor)
        return tensors, held


def _held(name: str, tensor: Any) -> tuple[Any, Held]:
    """This process's own tensor, and what it holds of the whole one."""
    place = None
    if is_dtensor(tensor):
        mesh = tensor.device_mesh
        sizes = [mesh.size(i) for i in range(mesh.ndim)]
        place = list(tensor.shape), *box_of(name, list(tensor.shape), tensor.placements, sizes, mesh.get_coordinate())
        with imported().no_grad():  # else it would be an operation of autograd
            tensor = tensor.to_local()
    return tensor, held_of(name, tensor, place)


def held_of(name: str, tensor: Any, place: tuple[list[int], list[int], list[int]] | None) -> Held:
    """What this process's own tensor holds. place: the whole's shape, and offset and shape of its box; None: it is whole."""
    dtype, local, strides, address, device = describe(name, tensor)
    shape, offset, box = place or (local, [0] * len(local), local)
    if local != box and (prod(local) or prod(box)):
        raise BasculeError(f"tensor {name}: this rank holds {local} of it, and its placements say {box}; {_GATHER}",
                           "INVALID_ARGUMENT")
    return Held(dtype, shape, offset, box, strides, address, device)


def is_dtensor(tensor: Any) -> bool:
    """Whether it is torch's DTensor. Does not import torch.distributed.tensor."""
    return is_torch(tensor) and any(base.__name__ == "DTensor" for base in type(tensor).__mro__)


def box_of(name: str, shape: list[int], placements: Sequence[Any], sizes: list[int],
           place: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Offset and shape of a rank's box of a tensor that is placed on a mesh of these sizes.

    place: the rank's coordinate there; None: it is outside the mesh, and its box is empty. Raises BasculeError
    (INVALID_ARGUMENT) if the rank's part is no box.
    """
    offset, box = [0] * len(shape), list(shape)
    for dim, cuts in _cuts_of(name, placements, sizes, len(shape)).items():
        for mesh_dim in cuts:  # each cuts what the cuts before it left into equal chunks; the last ones may be short or empty
            chunk = -(-box[dim] // sizes[mesh_dim])
            begin = min(chunk * place[mesh_dim], box[dim]) if place else 0
            offset[dim] += begin
            box[dim] = min(chunk, box[dim] - begin)
    return (offset, box) if place is not None else ([0] * len(shape), [0] * len(shape))


def _cuts_of(name: str, placements: Sequence[Any], sizes: list[int], ndim: int) -> dict[int, list[int]]:
    """For each dimension of a tensor that is cut, the dimensions of the mesh that cut it, in the order in which they do.

    Usually that is the mesh's order. With FSDP2 on top of tensor parallelism, the mesh dimensions that follow a
    _StridedShard cut before it, if its split_factor is the number of their pieces. Any other piece is no box.
    """
    cuts: dict[int, list[int]] = {}
    for mesh_dim, placement in reversed(list(enumerate(placements))):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        later = cuts.setdefault(placement.dim % ndim, []) if kind in ("Shard", "_StridedShard") else []
        if kind == "Shard":
            later.insert(0, mesh_dim)
        elif kind == "_StridedShard" and placement.split_factor == prod(sizes[each] for each in later):
            later.append(mesh_dim)
        else:
            raise BasculeError(f"tensor {name}: a rank's part of a DTensor placed by {tuple(placements)} on a mesh of "
                               f"{sizes} is not one box of it; {_GATHER}", "INVALID_ARGUMENT")
    return cuts


def _place(device: int) -> str:
    return "host memory" if device == HOST else f"the memory of GPU {device}"


def _shown(held: Held) -> str:
    return f"{held.dtype} {held.box} at {held.offset} of {held.shape}"
