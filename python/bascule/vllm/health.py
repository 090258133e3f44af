"""Lets GET /health fail while an engine generates nothing because weights could not be loaded.

This runs in vLLM's API server, whose check asks only whether the engine core's process lives. AsyncLLM.check_health is
wrapped when vLLM loads the plugin; it then also asks each engine core (follow.py).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

WHY = "bascule_why_stopped"  # the engine core's method that is called from here
_PATIENCE = 1.0  # seconds: a core that is busy with a long step answers later, and is healthy

_logger = logging.getLogger("vllm.plugins.bascule")


def install() -> None:
    """Wraps the check. A second call does nothing."""
    from vllm.v1.engine.async_llm import AsyncLLM

    if not hasattr(AsyncLLM.check_health, "_before_bascule"):
        AsyncLLM.check_health = _checked(AsyncLLM.check_health)


def _checked(check_health: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(check_health)
    async def check(engine: Any) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        await check_health(engine)
        asking = [asyncio.ensure_future(each) for each in _questions(engine.engine_core)]
        answered, _ = await asyncio.wait(asking, timeout=_PATIENCE)
        for each in answered:
            if why := each.result():
                _logger.warning("not healthy: %s", why)
                raise EngineDeadError(why)  # the only error that becomes status 503

    check._before_bascule = check_health
    return check


def _questions(client: Any) -> list[Any]:
    """One question for each engine core of the server."""
    engines = getattr(client, "core_engines", [])
    if len(engines) < 2:
        return [client.call_utility_async(WHY)]
    return [client._call_utility_async(WHY, engine=engine) for engine in engines]
