"""EndpointFolder: the endpoints in a folder, which come and go."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from typing import Any

from . import _core
from ._checks import url as checked_url
from ._lifetime import lives, refuse_in_child, refuse_to_travel
from .errors import BasculeError

_LOOK_EVERY = 50  # milliseconds between two looks for a close() in another thread


class EndpointFolder:
    """The endpoints in a folder, such as the adapters of a run. An engine joins those that appear, and leaves those that go:

        receivers = {}
        with bascule.EndpointFolder("shm:///run/user/1000/grpo/adapters") as folder:
            for appeared, gone in folder.changes():
                for name in gone:
                    receivers.pop(name).close()
                for name, url in appeared.items():
                    receivers[name] = bascule.Receiver(url, worker="engine-0")

    url: names the folder as if it were an endpoint, with the options that its endpoints get. The folder is made if there is
    none: an engine may start before its trainers.

    Any thread may call it. Raises BasculeError: INVALID_ARGUMENT if the URL is malformed, over TCP, or names an endpoint.
    """

    def __init__(self, url: str):
        self._url = checked_url("url", url)
        self._forked = False
        self._turn = threading.RLock()
        self._core: _core.EndpointFolder | None = _core.EndpointFolder(url)
        lives(self)

    def endpoints(self) -> dict[str, str]:
        """The endpoints that are there now: each one's name, and its URL. Does not block.

        An endpoint appears when a sender takes it for the first time. It outlives its senders, as receivers do, and goes when
        its folder is removed. Raises BasculeError if the folder cannot be read.
        """
        with self._turn:
            return self._open().endpoints()

    def changes(self) -> Iterator[tuple[dict[str, str], list[str]]]:
        """Yields the endpoints that appeared (as endpoints() gives them) and the names of those that went, as it happens.

        Begins with the endpoints that are there already, if any. Blocks between two changes, and ends after close(), which
        another thread may call. Raises BasculeError if the folder cannot be read.
        """
        core, known = self._open(), {}
        changed = select.poll()
        changed.register(core.fileno(), select.POLLIN)
        while self._core is not None:
            with self._turn:
                now = core.endpoints()
            appeared = {name: url for name, url in now.items() if name not in known}
            gone = [name for name in known if name not in now]
            known = now
            if appeared or gone:
                yield appeared, gone
            while self._core is not None and not changed.poll(_LOOK_EVERY):
                pass

    def fileno(self) -> int:
        """A descriptor for poll() and event loops: readable if endpoints() may have something new."""
        return self._open().fileno()

    def close(self) -> None:
        """Stops watching the folder. Receivers of its endpoints are not closed. A second call does nothing."""
        self._core = None

    def __enter__(self) -> EndpointFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise refuse_to_travel("EndpointFolder")

    def __repr__(self) -> str:
        return f"<EndpointFolder {self._url}{'' if self._core is not None else ', closed'}>"

    # ----

    def _open(self) -> _core.EndpointFolder:
        if self._forked:
            raise refuse_in_child("EndpointFolder")
        if self._core is None:
            raise BasculeError("this EndpointFolder is closed", "FAILED_PRECONDITION")
        return self._core

    def _close(self, patience: float | None) -> None:
        self.close()

    def _abandon(self) -> None:
        self._forked, self._core = True, None
        self._turn = threading.RLock()
