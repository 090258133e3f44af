"""Copies versions straight into a model's parameters, without its loader, if that provably gives the same bits.

The proof is made once, when an engine joins, from the checkpoint that vLLM has loaded: load_weights() only copies whole
tensors (trace.py), each parameter holds exactly their bits, and the kernels' processing after loading derives nothing
from them. Each tensor of the checkpoint then becomes a target, and the C++ receiver copies, casts and verifies.
"""

from __future__ import annotations

import copy
import logging
import os
from dataclasses import dataclass
from typing import Any

from ..errors import BasculeError
from ..receiver import Target
from .load import processes_as_attention
from .place import Place

_WAYS = ("auto", "load", "scatter")

logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


@dataclass(frozen=True)
class Scatter:
    """targets: the model's memory, by the checkpoint's names. addresses: the parameters' addresses."""

    targets: list[Target]
    addresses: list[int]

    def fits(self, model: Any) -> bool:
        """Whether the parameters still lie in the targets."""
        return self.addresses == _addresses(model)


def scatter(apply: str | None, place: Place, model: Any, vllm_config: Any) -> Scatter | None:
    """Returns the targets to copy into, or None if the model's loader shall load versions (load.py).

    apply: "load" always loads; "scatter" scatters, or logs a warning with the reason why not; "auto" scatters if the
    proof succeeds. Default: $BASCULE_APPLY, else "auto". Raises BasculeError: INVALID_ARGUMENT for another value.
    """
    way = apply or os.environ.get("BASCULE_APPLY") or "auto"
    if way not in _WAYS:
        raise BasculeError(f"apply: expected one of {', '.join(_WAYS)}, found {way!r}", "INVALID_ARGUMENT")
    if way == "load":
        return None
    try:
        return _proven(place, model, vllm_config)
    except Exception as error:  # also an error of the model's loader
        why = str(error) or type(error).__name__
        logger.log(logging.INFO if way == "auto" else logging.WARNING,
                   "the model's loader loads versions; they are not scattered: %s", why)
        return None


def _proven(place: Place, model: Any, vllm_config: Any) -> Scatter:
    from vllm.model_executor.model_loader import get_model_loader

    from .trace import Untraceable, trace

    if place.ranks > 1:  # a part also fits a larger tensor
        raise Untraceable(f"each of {place.ranks} ranks takes parts of tensors, and could not check their whole shapes")
    if vllm_config.model_config.quantization is not None or vllm_config.lora_config is not None:
        raise Untraceable("the model is quantised, or has adapters")
    _check_kernels(model, vllm_config.model_config)
    loader = get_model_loader(vllm_config.load_config)
    if not hasattr(loader, "get_all_weights"):
        raise Untraceable(f"{type(loader).__name__} cannot show the checkpoint once more")
    copies = trace(model, loader.get_all_weights(vllm_config.model_config, model))
    if len({each.name for each in copies}) < len(copies):
        raise Untraceable("the loader copies a tensor to two places")
    return Scatter([Target(each.name, each.into) for each in copies], _addresses(model))


def _addresses(model: Any) -> list[int]:
    return [parameter.data_ptr() for parameter in model.parameters()]


def _check_kernels(model: Any, model_config: Any) -> None:
    """Raises Untraceable if the processing after loading keeps something that it derived from the weights."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    from .trace import Untouched, Untraceable

    for name, parameter in model.named_parameters():
        if parameter.numel() == 0:
            raise Untraceable(f"kernels packed {name} into their own memory")
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        with Untouched(model, f"{type(method or layer).__name__} of {name}"):
            if isinstance(method, QuantizeMethodBase):
                method.process_weights_after_loading(_shadow(layer))
            if processes_as_attention(layer):
                _shadow(layer).process_weights_after_loading(model_config.dtype)


def _shadow(layer: Any) -> Any:
    """A copy of `layer` with the same tensors, whose attributes can be set."""
    shadow = copy.copy(layer)
    for kind in ("_parameters", "_buffers", "_modules"):
        setattr(shadow, kind, dict(getattr(layer, kind)))
    return shadow
