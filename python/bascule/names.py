"""Names of tensors as they are sent."""

from __future__ import annotations

from typing import Any

from .errors import BasculeError

# Prefixes that wrappers add to the names of the module that they wrap.
_WRAPPERS = {
    "module",  # DistributedDataParallel, DeepSpeed
    "_orig_mod",  # torch.compile
    "_fsdp_wrapped_module",  # FullyShardedDataParallel
    "_checkpoint_wrapped_module",  # activation checkpointing
}
_PEFT = "base_model.model."  # PeftModel, before the names of the model that it wraps
_ADAPTED = "base_layer"  # PEFT, around a layer that has adapters


def hf_names(name: str) -> str:
    """Removes from a tensor's name the parts that PyTorch's and PEFT's wrappers add.

    "_orig_mod.module.model.layers.0._checkpoint_wrapped_module.mlp.weight" becomes "model.layers.0.mlp.weight", and so
    does "base_model.model.model.layers.0.mlp.base_layer.weight". _orig_mod, _fsdp_wrapped_module,
    _checkpoint_wrapped_module and base_layer are removed anywhere, except base_layer at the beginning; module and
    base_model.model are removed at the beginning, or after another removed part. Nothing else changes, so that engines get the names in Hugging Face's
    checkpoint. The last part is the tensor's own name and always stays.
    """
    if "module" not in name and "_orig_mod" not in name and _ADAPTED not in name and _PEFT not in name:
        return name
    kept: list[str] = []
    behind_wrapper = True  # or at the beginning
    *modules, own = name.split(".")
    at = 0
    while at < len(modules):
        part = modules[at]
        if behind_wrapper and modules[at:at + 2] == ["base_model", "model"]:
            at += 2
            continue
        at += 1
        if (part == _ADAPTED and kept) or (part in _WRAPPERS and (part != "module" or behind_wrapper)):
            behind_wrapper = True
            continue
        behind_wrapper = False
        kept.append(part)
    return ".".join([*kept, own])


def refuse_adapters(model: Any, rename: Any, way_out: str) -> None:
    """Raises BasculeError (INVALID_ARGUMENT), which names a tensor of a PEFT adapter in a module.

    Such tensors have no name in Hugging Face's checkpoint; with another `rename` than hf_names they may be meant.
    """
    if rename is not hf_names:
        return
    for path, module in model.named_modules():
        kinds = getattr(module, "adapter_layer_names", ())  # of PEFT's layers
        if hasattr(module, "peft_config") and hasattr(module, "prompt_encoder"):
            kinds = ["prompt_encoder"]
        if not isinstance(kinds, (tuple, list)):
            continue
        for kind in kinds:
            held = getattr(module, kind, None)
            tensors = held.named_parameters() if hasattr(held, "named_parameters") else ()
            for name, _ in tensors:
                raise BasculeError(f"tensor {path + '.' if path else ''}{kind}{'.' + name if name else ''} belongs to a "
                                   f"PEFT adapter, which Hugging Face's checkpoint does not have: {way_out}",
                                   "INVALID_ARGUMENT")
