"""Copies versions straight into a model's parameters, without its loader, if that provably gives the same bits.

The proof is made once, when an engine joins, from the checkpoint that vLLM has loaded: load_weights() only copies boxes
of tensors (trace.py), each parameter holds exactly their bits, and the kernels' processing after loading derives nothing
from them. Each box then becomes a target, and the C++ receiver copies, casts and verifies. Of several ranks, each proves
this for its own slices, and reads only these.
"""

from __future__ import annotations

import copy
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BasculeError
from ..receiver import Part, Slice, Target
from ..tensors import TensorSpec
from .load import processes_as_attention
from .place import Place
from .together import on_all_ranks

if TYPE_CHECKING:
    from .trace import Copied

_WAYS = ("auto", "load", "scatter")

logger = logging.getLogger("vllm.plugins.bascule")  # vLLM shows the logs of loggers below "vllm"


@dataclass(frozen=True)
class Scatter:
    """targets: the model's memory, and the boxes of the checkpoint's tensors that fill it. shapes: of these tensors, by
    name. addresses: the parameters' addresses."""

    targets: list[Target]
    shapes: dict[str, tuple[int, ...]]
    addresses: list[int]

    def fits(self, model: Any) -> bool:
        """Whether the parameters still lie in the targets."""
        return self.addresses == _addresses(model)

    @property
    def is_whole(self) -> bool:
        """Whether each target is a whole tensor of its name."""
        return not any(target.parts for target in self.targets)

    def check(self, tensors: list[TensorSpec], description: str) -> None:
        """Raises BasculeError (INVALID_ARGUMENT) if a tensor has another shape: a slice also fits a larger tensor."""
        for each in tensors:
            if (shape := self.shapes.get(each.name)) is not None and tuple(each.shape) != shape:
                raise BasculeError(f"tensor {each.name} has the shape {list(each.shape)}; the checkpoint that this engine "
                                   f"loaded has {list(shape)}", "INVALID_ARGUMENT")


def scatter(apply: str | None, place: Place, model: Any, vllm_config: Any) -> Scatter | None:
    """Returns the targets to copy into, or None if the model's loader shall load versions (load.py).

    Call it on all ranks of an engine at once: all of them get targets, or none. apply: "load" always loads; "scatter"
    scatters, or logs a warning with the reason why not; "auto" scatters if the proof succeeds. Default: $BASCULE_APPLY,
    else "auto". Raises BasculeError: INVALID_ARGUMENT for another value.
    """
    way = apply or os.environ.get("BASCULE_APPLY") or "auto"
    if way not in _WAYS:
        raise BasculeError(f"apply: expected one of {', '.join(_WAYS)}, found {way!r}", "INVALID_ARGUMENT")
    if way == "load":
        return None
    if (stages := vllm_config.parallel_config.pipeline_parallel_size) > 1:
        found, why = None, f"each of the {stages} pipeline stages takes some of the tensors only"
    else:
        found, why = _proven_or_why(model, vllm_config)
        if not on_all_ranks(place, found is not None):
            found, why = None, why or "another rank cannot scatter them; its log has the reason"
    if found is None:
        logger.log(logging.INFO if way == "auto" else logging.WARNING,
                   "the model's loader loads versions; they are not scattered: %s", why)
    return found


def _proven_or_why(model: Any, vllm_config: Any) -> tuple[Scatter | None, str]:
    try:
        return _proven(model, vllm_config), ""
    except Exception as error:  # also an error of the model's loader
        return None, str(error) or type(error).__name__


def _proven(model: Any, vllm_config: Any) -> Scatter:
    from vllm.model_executor.model_loader import get_model_loader

    from .trace import Untraceable, trace

    if vllm_config.model_config.quantization is not None or vllm_config.lora_config is not None:
        raise Untraceable("the model is quantised, or has adapters")
    _check_kernels(model, vllm_config.model_config)
    loader = get_model_loader(vllm_config.load_config)
    if not hasattr(loader, "get_all_weights"):
        raise Untraceable(f"{type(loader).__name__} cannot show the checkpoint once more")
    found = trace(model, loader.get_all_weights(vllm_config.model_config, model))
    targets: dict[str, Target] = {}
    for each in found.copies:
        target = _target(f"{each.name} ({len(targets)})" if each.name in targets else each.name, each, found.shapes)
        targets[target.name] = target
    return Scatter(list(targets.values()), found.shapes, _addresses(model))


def _target(name: str, copied: Copied, shapes: dict[str, tuple[int, ...]]) -> Target:
    """The target `name`, into which a version is copied like `copied`. Without parts if that is the whole tensor `name`."""
    whole = shapes[copied.name]
    if copied.into.numel() == 0 and whole:
        return Target(name, copied.into.new_empty((0, *whole[1:])), [Part(copied.name, [Slice(0, 0, 0)])])
    slices = [Slice(dim, begin, begin + size)
              for dim, (begin, size, all_of) in enumerate(zip(copied.begin, copied.into.shape, whole)) if size < all_of]
    return Target(name, copied.into, [Part(copied.name, slices)] if slices or name != copied.name else ())


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
