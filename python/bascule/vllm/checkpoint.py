"""Which tensors a version must have, where vLLM's loader cannot say what it missed: the checkpoint's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def needed_names(model: Any, vllm_config: Any) -> frozenset[str]:
    """The names of the tensors in the checkpoint that a quantised model was loaded from.

    Reads the headers of the checkpoint's files only. Returns an empty set if the model is not quantised, since load()
    then compares what was loaded with the model's parameters, or if the checkpoint is not in safetensors files.
    """
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    config = vllm_config.model_config
    loader = get_model_loader(vllm_config.load_config)
    if config.quantization is None or not isinstance(loader, DefaultModelLoader):
        return frozenset()
    from safetensors import safe_open

    _, files, is_safetensors, *_ = loader._prepare_weights(
        config.model, None, config.revision, getattr(model, "fall_back_to_pt_during_load", True),
        getattr(model, "allow_patterns_overrides", None))
    names: set[str] = set()
    for file in files if is_safetensors else ():
        with safe_open(file, framework="pt") as checkpoint:
            names.update(checkpoint.keys())
    return frozenset(name for name in names if not _left_out(name, config.hf_text_config))


def missing_names(model: Any, needed: Iterable[str], names: Iterable[str]) -> list[str]:
    """Returns the tensors of `needed` that are missing from `names`, sorted. The model's loader may know one tensor by several names."""
    came = {_place(model, name) for name in names}
    return sorted(name for name in needed if (place := _place(model, name)) is not None and place not in came)


def _place(model: Any, name: str) -> str | None:
    """Where the model's loader puts tensor `name`, as a text; None if it leaves the tensor out."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is None:
        return name
    map_name = getattr(mapper, "_map_name_with_shard", mapper._map_name)  # with the part of a fused tensor
    place = map_name(name)
    return None if place is None else str(place)


def _left_out(name: str, config: Any) -> bool:
    """Whether vLLM's loaders leave `name` out: heads that are tied, computed tables, layers for draft models."""
    parts = name.split(".")
    layer = next((int(after) for part, after in zip(parts, parts[1:]) if part == "layers" and after.isdigit()), -1)
    return (name.endswith("rotary_emb.inv_freq") or "mtp" in parts or layer >= config.num_hidden_layers
            or (name.endswith("lm_head.weight") and config.tie_word_embeddings))
