"""Loads a slot's tensors into a vLLM model, with the model's own load_weights()."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ..errors import BasculeError
from ..places import check_tied


def load(model: Any, model_config: Any, weights: Mapping[str, Any]) -> None:
    """Writes `weights`, named as in the checkpoint, into the tensors that the model's kernels use.

    vLLM's layerwise reload makes each layer again from the checkpoint's tensors (fused, cut for this rank, quantised)
    and copies it over the old one, whose addresses stay. The slot must not change until this returns: a layer keeps
    views of it until all its tensors have come.

    Raises what the model's loader raises; BasculeError (INVALID_ARGUMENT) if tensors of the model did not come, or if two
    that are tied in it came with different elements, of which the loader would drop one. The model's weights are then a
    mixture of versions, and the next load starts from the beginning.
    """
    import torch
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    _check_tied(model, weights)
    with torch.no_grad(), _incomplete_mtp_allowed():
        wanted = _names(model)  # tied tensors once: they are separate during the reload
        tied = _tied(model)
        initialize_layerwise_reload(model)
        try:
            wanted &= _names(model)  # as in the checkpoint, not what kernels made of it
            loaded = model.load_weights(iter(weights.items()))
            # Like vLLM's own loader: not every model returns what it loaded, and quantisation adds parameters.
            if loaded is None or model_config.quantization is not None:
                _check_came(model, tied, _absent(model_config, weights))
            else:
                if missing := sorted(wanted - set(map(_without_adapters, loaded))):
                    raise BasculeError(f"{len(missing)} tensors of the model did not come, such as {missing[0]}",
                                       "INVALID_ARGUMENT")
                _check_whole(model)
        except BaseException:
            _end_reload(model, model_config)
            raise
        finalize_layerwise_reload(model, model_config)
        _pack_tied(model)


def _check_tied(model: Any, weights: Mapping[str, Any]) -> None:
    places = {_without_adapters(name): each for name, each in model.named_parameters(remove_duplicate=False)}
    check_tied(places, weights, by_memory=False)


def _check_whole(model: Any) -> None:
    """Raises BasculeError if a tensor of a fused layer is missing: vLLM would leave its place unwritten."""
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        if isinstance(layer, LinearBase) and info.can_load() and info.load_numel < info.load_numel_total:
            raise BasculeError(f"only {info.load_numel} of the {info.load_numel_total} elements of {name} came: a "
                               "tensor that is fused into it is missing", "INVALID_ARGUMENT")


def _check_came(model: Any, tied: set[Any], absent: set[str] | None) -> None:
    """Raises BasculeError if a layer got nothing, or a linear layer only a part: vLLM would accept it.

    absent: the checkpoint's names that the version lacks; None: unknown. If it lacks none, layers that are not full are
    padded, or the checkpoint does not have them.
    """
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        comes = layer not in tied and layer._parameters and info.can_load() and not processes_as_attention(layer)
        if absent == set() or not comes:
            continue
        is_part = isinstance(layer, LinearBase) and info.load_numel < info.load_numel_total and absent
        if is_part or (info.load_numel == 0 and info.load_numel_total > 0):
            lacks = f"; {len(absent)} of the checkpoint's tensors are missing, such as {min(absent)}" if absent else ""
            raise BasculeError(f"only {info.load_numel} of the {info.load_numel_total} elements of {name} came{lacks}",
                               "INVALID_ARGUMENT")


def _absent(model_config: Any, weights: Mapping[str, Any]) -> set[str] | None:
    """The names in the model's checkpoint that are not in `weights`; None if its files are not known here."""
    names = _checkpoint_names(model_config.model, model_config.revision)
    return None if names is None else names - weights.keys()


@functools.cache
def _checkpoint_names(model: str, revision: str | None) -> frozenset[str] | None:
    from huggingface_hub import try_to_load_from_cache
    from safetensors import safe_open

    def path_of(file: str) -> str | None:
        found = os.path.join(model, file)
        if not os.path.isdir(model):
            found = try_to_load_from_cache(model, file, revision=revision)
        return found if isinstance(found, str) and os.path.isfile(found) else None

    if (index := path_of("model.safetensors.index.json")) is not None:
        with open(index, "rb") as file:
            return frozenset(json.load(file)["weight_map"])
    if (whole := path_of("model.safetensors")) is not None:
        with safe_open(whole, "pt") as tensors:
            return frozenset(tensors.keys())
    return None


def processes_as_attention(layer: Any) -> bool:
    """Whether vLLM processes a layer's weights once all other layers have theirs."""
    from vllm.model_executor.layers import attention

    if hasattr(attention, "is_deferred_attention_layer"):
        return attention.is_deferred_attention_layer(layer)
    kinds = attention.Attention, attention.MLAAttention, attention.MMEncoderAttention  # vLLM 0.26
    return isinstance(layer, kinds) and hasattr(layer, "process_weights_after_loading")


def _tied(model: Any) -> set[Any]:
    """The layers whose tensors all also belong to an earlier layer: they do not come separately."""
    first: dict[int, Any] = {}
    own = {layer: [each for each in layer._parameters.values() if each is not None] for layer in model.modules()}
    return {layer for layer, tensors in own.items()
            if tensors and all([first.setdefault(id(each), layer) is not layer for each in tensors])}


def _pack_tied(model: Any) -> None:
    """Packs a head that is tied to the embedding again: it is not reloaded, but CPU kernels keep a packed copy."""
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

    first: dict[int, Any] = {}
    for layer in model.modules():
        weight = layer._parameters.get("weight")
        if weight is None or first.setdefault(id(weight), layer) is layer:
            continue
        method = getattr(layer, "quant_method", None)
        if isinstance(method, UnquantizedEmbeddingMethod):
            method.process_weights_after_loading(layer)


def _names(model: Any) -> set[str]:
    return {_without_adapters(name) for name, _ in model.named_parameters()}


def _without_adapters(name: str) -> str:
    """The parameter's name without what vLLM adds to it where adapters are enabled (--enable-lora)."""
    return name.replace(".base_layer.", ".")


def _end_reload(model: Any, model_config: Any) -> None:
    """Gives each layer that was not loaded its old tensors back: none may stay on the meta device."""
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            info.load_numel = 0
            info.loaded_weights.clear()
    finalize_layerwise_reload(model, model_config)


def _incomplete_mtp_allowed() -> Any:
    try:
        from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
    except ImportError:  # this vLLM has no such check
        return nullcontext()
    return disable_mtp_completeness_check()
