"""What bascule.trl does for a trainer that FSDP2 shards, as accelerate does it: each rank sends its shards, without a gather."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from .errors import BasculeError, text_of
from .modules import is_fsdp2
from .names import hf_names
from .sender import Sender
from .sharded import HeldModel

_logger = logging.getLogger("bascule")


class Parameters(Mapping):
    """A module's present parameters by name; tied ones have one name, as in TRL's updates. While FSDP2 shows gathered
    ones, a look at them reshards the module, because optimizers write only the shards."""

    def __init__(self, model: Any):
        self._model = model

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __getitem__(self, name: str) -> Any:
        return self._model.get_parameter(name)

    def _now(self) -> dict[str, Any]:
        for module in self._model.modules():
            if is_fsdp2(module):
                module.reshard()
        return dict(self._model.named_parameters())


def is_sharded(model: Any) -> bool:
    """Whether fully_shard() was called with a part of the model."""
    return any(is_fsdp2(module) for module in model.modules())


class Shards:
    """One rank's sender. All ranks make the same calls."""

    def __init__(self, model: Any, client: Any):
        """client: TRL's client, with Bascule's weight methods, on rank 0; None on the others."""
        self._model, self._client = Parameters(model), client
        self._sender: Any = None
        self._step = 0

    def begin(self) -> bool:
        """The first update's part: all ranks register their shards, and rank 0 waits for the workers.

        Returns False if they cannot be sent; one log line then says why. Raises on all ranks if the workers did not come.
        """
        from accelerate.utils import broadcast_object_list

        given = [self._client and (self._client.bascule_endpoint, _boot())]
        broadcast_object_list(given, from_process=0)
        if why := _first(self._obstacle(*given[0])) or _first(self._refusal()):
            self.close()
            if self._client is not None:
                _logger.warning("TRL gathers the weights for each update; their shards are not sent: %s", why)
            return False
        failed = None
        if self._client is not None:
            _logger.info("each rank sends the shards that it holds; nothing is gathered")
            try:
                self._client.take_over(self._sender)
            except Exception as error:  # the others wait for an answer
                failed = error
        said = [failed and text_of(failed)]
        broadcast_object_list(said, from_process=0)
        if said[0]:
            raise failed or BasculeError(said[0], "UNAVAILABLE")
        return True

    def send(self) -> Any:
        """Sends the parameters' present shards. Returns the report, which is the same on all ranks."""
        self._step += 1
        return self._sender.send(step=self._step)

    def close(self) -> None:
        """Leaves the endpoint."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _obstacle(self, endpoint: str, boot: str) -> str:
        """Why this rank cannot send its shards; empty if it can."""
        if boot != _boot():
            return "the ranks are on several hosts"
        try:
            HeldModel(self._model, hf_names)
            self._sender = Sender(endpoint, sharded=True)
        except BasculeError as error:
            return text_of(error)
        return ""

    def _refusal(self) -> str:
        """Registers the shards. Returns why that failed, for example because they are on GPUs and the slots are not."""
        try:
            self._sender.register_model(self._model)
        except BasculeError as error:
            return text_of(error)
        return ""


def _first(text: str) -> str:
    """The first of all ranks' texts that is not empty. A collective."""
    from accelerate.utils import gather_object

    return next(filter(None, gather_object([text])), "")


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
