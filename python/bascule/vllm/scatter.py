"""Versions copied straight into a model's parameters, in place of its loader: where that is proven to be the same.

The proof is made once, when an engine joins, from the checkpoint that vLLM has loaded: load_weights() does nothing but
copy whole tensors (trace.py), each parameter holds their very bits, and what kernels do after loading makes nothing of
them. Then each tensor of the checkpoint is a target, and the C++ of the receiver copies, casts and verifies.
"""

from __future__ import annotations

import copy
import logging
import os
from dataclasses import dataclass
from typing import Any

from ..errors import BasculeError
from ..receiver import Target
from .place import Place

_WAYS = ("auto", "load", "scatter")

logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows what is logged below "vllm"


@dataclass(frozen=True)
class Scatter:
    """targets: the model's memory, by the checkpoint's names. addresses: of the parameters."""

    targets: list[Target]
    addresses: list[int]

    def fits(self, model: Any) -> bool:
        """Whether the parameters still lie in the targets."""
        return self.addresses == _addresses(model)


def scatter(apply: str | None, place: Place, model: Any, vllm_config: Any) -> Scatter | None:
    """None: versions go through the model's loader (load.py).

    apply: "load"; "scatter", or a warning says why not; "auto", the default: scatter where it is proven. Default:
    $BASCULE_APPLY.
    """
    way = apply or os.environ.get("BASCULE_APPLY") or "auto"
    if way not in _WAYS:
        raise BasculeError(f"apply: expected one of {', '.join(_WAYS)}, found {way!r}", "INVALID_ARGUMENT")
    if way == "load":
        return None
    try:
        return _proven(place, model, vllm_config)
    except Exception as error:  # of the model's loader, too
        why = str(error) or type(error).__name__
        logger.log(logging.INFO if way == "auto" else logging.WARNING,
                   "versions are loaded by the model's loader, not scattered: %s", why)
        return None


def _proven(place: Place, model: Any, vllm_config: Any) -> Scatter:
    from vllm.model_executor.model_loader import get_model_loader

    from .trace import Untraceable, trace

    if place.ranks > 1:  # a part fits a larger tensor, too
        raise Untraceable(f"each of {place.ranks} ranks takes parts of tensors, whose whole shapes it could not check")
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
    """Raises Untraceable where what runs after loading keeps something of its own of the weights."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    from .trace import Untouched, Untraceable

    for name, parameter in model.named_parameters():
        if parameter.numel() == 0:
            raise Untraceable(f"kernels packed {name} into memory of their own")
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        with Untouched(model, f"{type(method or layer).__name__} of {name}"):
            if isinstance(method, QuantizeMethodBase):
                method.process_weights_after_loading(_shadow(layer))
            if _processes_as_attention(layer):
                _shadow(layer).process_weights_after_loading(model_config.dtype)


def _processes_as_attention(layer: Any) -> bool:
    from vllm.model_executor.layers import attention

    if hasattr(attention, "is_deferred_attention_layer"):
        return attention.is_deferred_attention_layer(layer)
    kinds = attention.Attention, attention.MLAAttention, attention.MMEncoderAttention  # vLLM 0.26
    return isinstance(layer, kinds) and hasattr(layer, "process_weights_after_loading")


def _shadow(layer: Any) -> Any:
    """A layer with the tensors of `layer`, to which attributes can be set."""
    shadow = copy.copy(layer)
    for kind in ("_parameters", "_buffers", "_modules"):
        setattr(shadow, kind, dict(getattr(layer, kind)))
    return shadow
