"""Lets a thread of vLLM's engine core call functions in the core's busy loop, between two steps of the scheduler."""

from __future__ import annotations

import functools
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from typing import Any

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

    Blocks until all have. Raises what `join` raised.
    """
    folder = tempfile.mkdtemp(prefix="bascule-")
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/follow")
            listening.listen()
            core.collective_rpc(join, args=(f"{folder}/follow", *arguments))
            connection, _ = listening.accept()
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    finally:
        shutil.rmtree(folder)
    return descriptors[0]


def send_descriptor(address: str, descriptor: int) -> None:
    """Passes a descriptor to the engine core, which waits at `address`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"0"], [descriptor])
