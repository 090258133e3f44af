"""One rank of an engine: takes a version, loads it, and says so to the sender."""

from __future__ import annotations

from typing import Any

from ..errors import BasculeError
from ..receiver import Receiver
from .load import load
from .place import Place


class Rank:
    """Calls that take a version are made on all ranks of an engine at once: one rank decides for all.

    place: where it joins. A process that wrote tensors of the slot would end, so the model gets them to read only.
    """

    def __init__(self, place: Place):
        self.place = place
        self.version = 0  # that the model holds; 0: none yet, or a mixture
        self.loads = 0  # so far; a version's number may come again from another sender
        self.mixture = False  # loading failed: the model's tensors may be of several versions
        self.receiver = Receiver(place.endpoint, worker=place.worker, group=place.group, rank=place.rank,
                                 ranks=place.ranks, device=place.device)

    def update(self, model: Any, model_config: Any, version: int | None = None, timeout: float = 30) -> int | None:
        """Takes a version and loads it; the sender hears that it is loaded, or why not.

        version: it, or a newer one; None: the newest. The version that was loaded; None: none came within `timeout`
        seconds, or it was loaded before.

        Raises what loading raised. The sender then brings the newest version again.
        """
        taken = self._take(version, timeout)
        if taken is None:
            return None
        self.version, self.mixture = 0, True
        try:
            load(model, model_config, self.receiver.weights())
        except BaseException as error:
            self.receiver.finish(error)
            raise
        self.receiver.finish()
        self.version, self.mixture = taken, False
        self.loads += 1
        return taken

    def close(self) -> None:
        self.receiver.close()

    def _take(self, version: int | None, timeout: float) -> int | None:
        if self.place.ranks == 1:
            return self.receiver.take(version, timeout)
        decided = None, None
        if self.place.rank == 0:
            try:
                decided = self.receiver.take(version, timeout), None
            except BasculeError as error:  # the others wait for an answer
                decided = None, error
        taken, error = _from_first_rank(decided)
        if error is not None:
            raise error
        if taken is not None and self.place.rank != 0:
            self.receiver.take(taken, timeout)
        return taken


def _from_first_rank(what: Any) -> Any:
    from vllm.distributed.parallel_state import get_pp_group, get_tp_group

    return get_tp_group().broadcast_object(get_pp_group().broadcast_object(what, 0), 0)
