"""What all ranks of an engine decide together. Each function must be called on all of them at once, in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..errors import BasculeError, BasculeTimeoutError
from ..receiver import Receiver
from .place import Place

_PATIENCE = timedelta(minutes=10)  # for the slowest rank, which may still read a checkpoint


def on_all_ranks(place: Place, yes: bool) -> bool:
    """Whether every rank says yes. For engines without pipeline parallelism."""
    if place.ranks == 1:
        return yes
    import torch
    from vllm.distributed.parallel_state import get_tp_group

    votes = torch.tensor([int(yes)])
    torch.distributed.all_reduce(votes, torch.distributed.ReduceOp.MIN, get_tp_group().cpu_group,
                                 async_op=True).wait(_PATIENCE)
    return bool(votes.item())


def from_first_rank(what: Any) -> Any:
    """Rank 0's `what`."""
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_tp_group().broadcast_object(get_pp_group().broadcast_object(what, 0), 0)


@dataclass(frozen=True)
class Choice:
    """Rank 0's: the version that it took, or its error; the version that it held before; whether it stops trying."""

    version: int | None
    error: BasculeError | None
    held: int
    last: bool


def choose(place: Place, receiver: Receiver, held: int, version: int | None, timeout: float, last: bool = True) -> Choice:
    """Rank 0 takes a version, and tells the other ranks. held: the version that this rank holds."""
    taken, error = None, None
    if place.rank == 0:
        try:
            taken = receiver.take(version, timeout)
        except BasculeError as raised:  # the other ranks wait for an answer
            error = raised
    if error is None:
        last |= version is not None  # it is served already
    elif not isinstance(error, BasculeTimeoutError):
        last = True
    choice = Choice(taken, error, held, last)
    return choice if place.ranks == 1 else from_first_rank(choice)


def follow(place: Place, receiver: Receiver, held: int, choice: Choice, timeout: float) -> int | None:
    """Takes the version of rank 0's choice, unless this is rank 0. Returns None if there is no newer version.

    Raises rank 0's error; what take() raised; BasculeError (UNAVAILABLE) if this rank does not have rank 0's version.
    """
    if choice.error is not None:
        raise choice.error
    taken = choice.version
    if taken is None and choice.held != held:
        taken = choice.held  # rank 0 loaded it before; this rank could not
    if taken and place.rank != 0 and receiver.take(taken, timeout) is None:
        status = receiver.status()
        if status.state != "serving" or status.version != taken:
            raise status.error or BasculeError(f"version {taken}, which rank 0 holds, is not here", "UNAVAILABLE")
    return taken or None


def taken_together(place: Place, receiver: Receiver, held: int, version: int | None, timeout: float) -> int | None:
    """Takes the version that rank 0 takes. Raises as follow() does."""
    return follow(place, receiver, held, choose(place, receiver, held, version, timeout), timeout)
