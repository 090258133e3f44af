"""Lets vLLM's API server tell the truth about an engine core that is stopped (stop.py).

GET /health then answers 503, and a request that ends because of the stop carries the reason. This wraps two methods of
vLLM's AsyncLLM in the API server's process, since vLLM has no hook there.
"""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

from .stop import REASON

_PATIENCE = 1.0  # seconds; a core that is loading a version answers only afterwards


def install() -> None:
    """Wraps the methods. A second call does nothing."""
    from vllm.v1.engine.async_llm import AsyncLLM

    if not hasattr(AsyncLLM.check_health, "_before_bascule"):
        AsyncLLM.check_health = _with_stops(AsyncLLM.check_health)
        AsyncLLM.generate = _with_reasons(AsyncLLM.generate)


def _with_stops(check_health: Callable[[Any], Any]) -> Callable[[Any], Any]:
    looks: weakref.WeakKeyDictionary[Any, _Look] = weakref.WeakKeyDictionary()  # by AsyncLLM

    @functools.wraps(check_health)
    async def check(llm: Any) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        await check_health(llm)
        if why := await looks.setdefault(llm, _Look()).at(llm.engine_core):
            error = EngineDeadError()  # what /health answers 503 to
            error.args = (why,)
            raise error

    check._before_bascule = check_health
    return check


class _Look:
    """The last known answer of an engine's cores to why they are stopped. Only one question is under way at a time."""

    def __init__(self) -> None:
        self._asking: asyncio.Task[str | None] | None = None
        self._why: str | None = None

    async def at(self, client: Any) -> str | None:
        if self._asking is None:
            self._asking = asyncio.ensure_future(_why_stopped(client))
        done, _ = await asyncio.wait([self._asking], timeout=_PATIENCE)
        if done and (asked := self._asking):
            self._asking = None
            self._why = asked.result()
        return self._why


async def _why_stopped(client: Any) -> str | None:
    """The reason of the first replica that is stopped, or None."""
    ask = getattr(client, "call_utility_all_async", None)  # of all replicas
    answers = await ask("bascule_stopped") if ask else [await client.call_utility_async("bascule_stopped")]
    return next(filter(None, answers), None)


def _with_reasons(generate: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(generate)
    async def with_reasons(llm: Any, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        from http import HTTPStatus

        from vllm.exceptions import GenerationError

        async for output in generate(llm, *arguments, **named):
            for each in output.outputs:
                if isinstance(each.stop_reason, str) and each.stop_reason.startswith(REASON):
                    error = GenerationError(each.stop_reason)
                    error.status_code = HTTPStatus.SERVICE_UNAVAILABLE
                    raise error
            yield output

    return with_reasons
