"""Loads a slot's tensors into a vLLM model, with the model's own load_weights()."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from ..errors import BasculeError
from .checkpoint import missing_names


def load(model: Any, model_config: Any, weights: Mapping[str, Any], needed: frozenset[str] = frozenset()) -> None:
    """Writes `weights`, named as in the checkpoint, into the tensors that the model's kernels use.

    vLLM's layerwise reload makes each layer again from the checkpoint's tensors (fused, cut for this rank, quantised)
    and copies it over the old one, whose addresses stay. The slot must not change until this returns: a layer keeps
    views of it until all its tensors have come.

    needed: tensors without which nothing is loaded (checkpoint.py).

    Raises what the model's loader raises; BasculeError (INVALID_ARGUMENT) if tensors of the model, or of `needed`, did
    not come. The model's weights are then a mixture of versions, and the next load starts from the beginning.
    """
    import torch
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    if missing := missing_names(model, needed, weights):
        raise _missing(missing, "checkpoint")
    with torch.no_grad(), _incomplete_mtp_allowed():
        wanted = _names(model)  # tied tensors once: they are separate during the reload
        initialize_layerwise_reload(model)
        try:
            wanted &= _names(model)  # as in the checkpoint, not what kernels made of it
            loaded = model.load_weights(iter(weights.items()))
            # Like vLLM's own loader: not every model returns what it loaded, and quantisation adds parameters.
            if loaded is not None and model_config.quantization is None:
                if missing := sorted(wanted - set(map(_without_adapters, loaded))):
                    raise _missing(missing, "model")
                _check_whole(model)
        except BaseException:
            _end_reload(model, model_config)
            raise
        finalize_layerwise_reload(model, model_config)
        _pack_tied(model)


def _check_whole(model: Any) -> None:
    """Raises BasculeError if a tensor of a fused layer is missing: vLLM would leave its place unwritten."""
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for name, layer in model.named_modules():
        info = get_layerwise_info(layer)
        if isinstance(layer, LinearBase) and info.can_load() and info.load_numel < info.load_numel_total:
            raise BasculeError(f"only {info.load_numel} of the {info.load_numel_total} elements of {name} came: a "
                               "tensor that is fused into it is missing", "INVALID_ARGUMENT")


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


def _missing(names: list[str], of: str) -> BasculeError:
    return BasculeError(f"{len(names)} tensors of the {of} did not come, such as {names[0]}", "INVALID_ARGUMENT")


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
