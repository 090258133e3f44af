"""Puts guards around the methods of a module that follows an endpoint, so that each reads or writes one version."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._calls import Calls, Guarded
from .errors import BasculeError
from .tensors import is_torch

# Methods that read or write all tensors before they return. _apply() is what to(), half() and share_memory() call.
_WHOLE = ("save_pretrained", "load_state_dict", "_apply")


def guard(model: Any, calls: Calls, at: str, in_place: bool) -> Callable[[], None]:
    """Counts each call of the model's methods in `calls`. Returns a function that undoes this."""
    guards = []
    for part in model.modules():
        for name, guarded in _guards(part, part is model, calls, at, in_place):
            vars(part)[name] = guarded
            guards.append((vars(part), name, guarded))

    def unguard() -> None:
        for attributes, name, guarded in guards:
            if attributes.get(name) is not guarded:
                continue  # other code wrapped it in turn, and still calls it
            if guarded.own is None:
                del attributes[name]
            else:
                attributes[name] = guarded.own

    return unguard


def _guards(part: Any, is_model: bool, calls: Calls, at: str, in_place: bool) -> Iterator[tuple[str, Guarded]]:
    """Names and guards of one part's methods.

    Parts that have their own generate() are guarded like the model: a wrapper's generate() calls the part's instead.
    """
    has_generate = callable(getattr(part, "generate", None))
    names = ["forward"] if is_model or has_generate else []
    # What __call__() calls: it runs the hooks around forward().
    names += [name for name in ("_call_impl",) if names and hasattr(part, name)]
    names += ["generate"] if has_generate and at == "call" else []
    names += [name for name in _WHOLE if callable(getattr(part, name, None))]
    for name in names:
        yield name, Guarded(getattr(part, name), calls, vars(part).get(name))
    yield "state_dict", _Live(part.state_dict, calls, vars(part).get("state_dict"))
    if in_place:
        yield "share_memory", _NotInPlace(part.share_memory, calls, vars(part).get("share_memory"))
    if (own := getattr(part, "__deepcopy__", None)) is not None:
        yield "__deepcopy__", Guarded(own, calls, vars(part).get("__deepcopy__"))
    else:
        yield "__deepcopy__", Guarded(lambda memo: _deep_copy(part, memo), calls)
    yield "__reduce_ex__", Guarded(lambda protocol: _pickled(part, protocol), calls)


class _Live(Guarded):
    """state_dict(), whose result also shows later versions: flips wait until it and its tensors are freed."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._calls.within():
            return super().__call__(*arguments, **named)
        with self._calls.held():
            result = super().__call__(*arguments, **named)
            part = self._method.__self__
            own = {id(tensor) for module in part.modules() for places in (module._parameters, module._buffers)
                   for tensor in places.values()}
            values = list(result.values()) if isinstance(result, Mapping) else []
            shown = [value for value in values if is_torch(value) and id(value) not in own]
            has_references = type(result).__weakrefoffset__ > 0
            self._calls.in_use([result, *shown] if has_references else shown, "state_dict()")
            if not has_references and (not values or len(shown) < len(values)):
                warnings.warn(f"state_dict() of {type(part).__name__} returns a plain {type(result).__name__} of the "
                              "model's own tensors, which the next version changes while they are copied or saved; "
                              "call it and use it within following.held()", stacklevel=2)
        return result


class _NotInPlace(Guarded):
    """share_memory() of a model whose tensors are views of a slot."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise BasculeError("share_memory() of a model that follows in place: other processes would keep these weights "
                           "for ever; follow with in_place=False", "FAILED_PRECONDITION")


def _deep_copy(part: Any, memo: dict[int, Any]) -> Any:
    """copy.deepcopy() of a module, without its guards."""
    make, arguments, state = _reduced(part, 4)[:3]
    memo[id(part)] = twin = make(*arguments)
    twin.__setstate__(copy.deepcopy(state, memo))
    return twin


def _pickled(part: Any, protocol: int) -> tuple[Any, ...]:
    """What pickle writes for a module: it reads it later, so the tensors are copies."""
    make, arguments, state, *more = _reduced(part, protocol)
    return make, arguments, copy.deepcopy(state, {id(part): part}), *more


def _reduced(part: Any, protocol: int) -> tuple[Any, ...]:
    make, arguments, state, *more = type(part).__reduce_ex__(part, protocol)
    if isinstance(state, dict):
        plain = {name: value.own if isinstance(value, Guarded) else value for name, value in state.items()}
        state = {name: value for name, value in plain.items() if value is not None or state[name] is None}
    return make, arguments, state, *more
