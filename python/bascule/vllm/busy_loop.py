"""Lets a thread of vLLM's engine core call functions in the core's busy loop, between two steps of the scheduler."""

from __future__ import annotations

import functools
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from ..errors import BasculeError, BasculeTimeoutError

_PATIENCE = 30.0  # seconds for what rank 0 has done by then
_CALL = object()  # marks our requests in vLLM's queue


class BusyLoop:
    """The busy loop of one engine core. Make it in the busy loop's thread, before the loop starts."""

    def __init__(self, core: Any):
        self._queue = core.input_queue
        handle = core._handle_client_request

        @functools.wraps(handle)
        def with_calls(kind: Any, request: Any) -> None:
            request() if kind is _CALL else handle(kind, request)

        if not getattr(core, "bascule_calls", False):
            core._handle_client_request, core.bascule_calls = with_calls, True

    def call(self, function: Callable[[], Any]) -> None:
        """Blocks until the loop has called `function`. An exception ends the engine core, as vLLM's own do."""
        called = threading.Event()

        def call() -> None:
            try:
                function()
            finally:
                called.set()

        self._queue.put_nowait((_CALL, call))
        called.wait()


def descriptor_of_rank_0(core: Any, join: Callable[..., None], *arguments: Any) -> int:
    """Calls join(worker, address, *arguments) in all workers, where rank 0's passes a descriptor by send_descriptor().

    Blocks until all have. Raises what `join` raised; BasculeError if none of the workers is rank 0, or its descriptor did
    not come.
    """
    folder = tempfile.mkdtemp(prefix="bascule-")
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/follow")
            listening.listen()
            ranks = len(core.collective_rpc(join, args=(f"{folder}/follow", *arguments)))
            descriptors = _received(listening, ranks)
    finally:
        shutil.rmtree(folder)
    if not descriptors:
        raise BasculeError("rank 0's worker of this engine passed no descriptor to the engine core; this process or the "
                           "worker's may have no descriptors left (ulimit -n)", "RESOURCE_EXHAUSTED")
    return descriptors[0]


def _received(listening: socket.socket, ranks: int) -> list[int]:
    listening.settimeout(_PATIENCE)
    try:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(_PATIENCE)
            return socket.recv_fds(connection, 1, 1)[1]
    except TimeoutError:
        raise BasculeTimeoutError(f"all {ranks} workers of this engine have joined, and rank 0 did not pass its descriptor to "
                                  f"the engine core within {_PATIENCE:.0f} s; expected one of them to be rank 0, on the "
                                  "engine core's host", "DEADLINE_EXCEEDED") from None


def send_descriptor(address: str, descriptor: int) -> None:
    """Passes a descriptor to the engine core, which waits at `address`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"0"], [descriptor])
