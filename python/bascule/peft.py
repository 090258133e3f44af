"""Keeps the LoRA adapter of a PEFT model at the newest version that a trainer sends with `register_adapter()`.

    base = AutoModelForCausalLM.from_pretrained(…)
    model = peft.get_peft_model(base, LoraConfig(…))     # the trainer's modules and ranks
    following = bascule.peft.follow(model, "shm:///run/user/1000/grpo/adapters/math")
    following.wait()              # for the first version
    model.generate(…)             # each token uses the newest adapter; an idle model also follows

It needs torch and peft.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ._checks import text, url
from .errors import BasculeError
from .hf import Following, start_following
from .lora import Layer, adapter_of, base_changed_by, base_class, config_of, layers_of, merged_of, module_of, places_of
from .lora_config import KEYS, check_config, parsed, scale_by
from .places import Places
from .sent import Place
from .tensors import TensorSpec

_logger = logging.getLogger("bascule")
__all__ = ["Following", "adapter_of", "follow", "merged_of"]


def follow(model: Any, endpoint: str, *, name: str = "default", worker: str = "", at: str = "token") -> Following:
    """Joins `endpoint` as `worker` (default: host and process id), and keeps an adapter of `model` at the newest version.

    Returns at once; a thread follows the endpoint. The sender may start later. Everything that bascule.hf.follow() says about
    flips, calls and held() also holds here. Each version is copied into the adapter's tensors, and cast if the types differ.

    model: PEFT has given it an adapter called `name` with the trainer's modules and ranks. Its lora_alpha, patterns and
    use_rslora do not matter: the sender folds the scale into B, so the first version sets the model's own to 1.
    name: of this model's adapter; the trainer's may have another.

    An adapter that is not for this model is refused before it is sent. The sender's report and `error` name the reason: no
    module in common, a module that only one end adapts, another rank or shape, another class of the base model, base weights
    that another adapter of this model changed, or a config that changes the forward pass. The model then keeps the version
    that it has. Raises BasculeError: INVALID_ARGUMENT for a wrong argument;
    FAILED_PRECONDITION if the model follows an endpoint already.
    """
    url("endpoint", endpoint)
    text("worker", worker)
    config_of(model, text("name", name))
    return start_following(lambda: _AdapterPlaces(model, name), model, endpoint, worker, at)


class _AdapterPlaces(Places):
    """An adapter's tensors in a model, by the names of PEFT's files."""

    def __init__(self, model: Any, name: str):
        self._name = name
        self._scales: tuple[str, Callable[[str, int], float]] | None = None  # the last description's, by module and rank
        super().__init__(model, None, in_place=False)
        if not any(name in layer.module.active_adapters for layer in layers_of(model, name)):
            _logger.warning("the adapter %s follows, and is not active: calls of the model do not use it before "
                            "set_adapter(%r)", name, name)

    def check_offer(self, tensors: list[TensorSpec], description: str) -> None:
        self._checked({tensor.name: tensor.shape for tensor in tensors}, description)

    def load(self, weights: Mapping[str, Any], description: str) -> None:
        config, layers = self._checked({name: tuple(tensor.shape) for name, tensor in weights.items()}, description)
        if merged := next((layer for layer in layers if layer.module.merged_adapters), None):
            raise BasculeError(f"module {merged.path} of this model has merged its adapter into the base weights, and would "
                               "compute with the old one; call unmerge_adapter()", "FAILED_PRECONDITION")
        super().load(weights, "")
        own = config_of(self.model, self._name)
        if self._scales is None or self._scales[0] != description:
            self._scales = description, functools.cache(scale_by(config))
        for layer in layers:
            layer.module.scaling[self._name] = scale = self._scales[1](layer.name, layer.rank)
            layer.module.lora_alpha[self._name], layer.module.use_rslora[self._name] = scale * layer.rank, False
        # So that save_pretrained() writes what the model computes.
        for key in ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"):
            setattr(own, key, config.get(key, KEYS[key].default))

    def _find(self) -> Mapping[str, Any]:
        places = places_of(self.model, self._name, layers_of(self.model, self._name))
        return {name: (place.owner, place.key) for name, place in places.items()}

    def _check_model(self) -> None:
        self._check_own_base()
        adapter_of(self.model, self._name)

    def _checked(self, shapes: Mapping[str, tuple[int, ...]], description: str) -> tuple[dict[str, Any], list[Layer]]:
        """The trainer's config, and this model's adapted modules. Raises BasculeError if the two do not fit."""
        if not description:
            raise BasculeError("the sender sends a model, not an adapter: follow it with bascule.hf.follow(), or call "
                               "register_adapter() at the trainer", "INVALID_ARGUMENT")
        config = parsed(description, "the description")
        check_config(config, what="the trainer's adapter")
        self._check_base(config)
        self._check_own_base()
        layers = list(layers_of(self.model, self._name))
        self._check_modules(shapes, places_of(self.model, self._name, layers))
        return config, layers

    def _check_base(self, config: Mapping[str, Any]) -> None:
        theirs, ours = (config.get("auto_mapping") or {}).get("base_model_class"), base_class(self.model)[0]
        if theirs and theirs != ours:
            raise BasculeError(f"the trainer's adapter is for a {theirs}; this model is a {ours}", "INVALID_ARGUMENT")

    def _check_own_base(self) -> None:
        if why := base_changed_by(self.model, self._name):
            raise BasculeError(f"{why}, and the trainer's adapter is for the original ones; follow with a separate copy of the "
                               "base model", "INVALID_ARGUMENT")

    def _check_modules(self, shapes: Mapping[str, tuple[int, ...]], places: Mapping[str, Place]) -> None:
        ours = {name: tuple(place.tensor.shape) for name, place in places.items()}
        sent, own = {module_of(name)[0] for name in shapes}, {module_of(name)[0] for name in ours}
        if not sent & own:
            raise BasculeError(f"the trainer's adapter binds no module of this model: it adapts {_some(sent)}, and this model "
                               f"has adapters at {_some(own)}", "INVALID_ARGUMENT")
        for more, who, lacks in ((sent - own, "the trainer's adapter", "this model's"), (own - sent, "this model's adapter",
                                                                                       "the trainer's")):
            if more:
                raise BasculeError(f"{who} is also for {_some(more)}, which {lacks} is not; give both ends the same "
                                   "target_modules", "INVALID_ARGUMENT")
        for name, shape in shapes.items():
            if name in ours and shape != ours[name]:
                module, kind = module_of(name)
                raise BasculeError(f"module {module}: the trainer's {kind} is {list(shape)}, and this model's "
                                   f"{list(ours[name])}{_other_rank(kind, shape, ours[name])}", "INVALID_ARGUMENT")


def _other_rank(kind: str, theirs: Any, own: Any) -> str:
    dim = 1 if "_B" in kind else 0  # of the rank
    if not kind.startswith("lora_") or len(theirs) != 2 or theirs[dim] == own[dim]:
        return ""
    return f": its rank is {theirs[dim]}, and this model's {own[dim]}"


def _some(modules: set[str]) -> str:
    return min(modules) + (f" and {len(modules) - 1} more" if len(modules) > 1 else "")
