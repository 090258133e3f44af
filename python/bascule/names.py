"""Names of tensors as they are sent."""

from __future__ import annotations

# Prefixes that wrappers add to the names of the module that they wrap.
_WRAPPERS = {
    "module",  # DistributedDataParallel, DeepSpeed
    "_orig_mod",  # torch.compile
    "_fsdp_wrapped_module",  # FullyShardedDataParallel
    "_checkpoint_wrapped_module",  # activation checkpointing
}


def hf_names(name: str) -> str:
    """Removes from a tensor's name the parts that PyTorch's wrappers add.

    "_orig_mod.module.model.layers.0._checkpoint_wrapped_module.mlp.weight" becomes "model.layers.0.mlp.weight".
    _orig_mod, _fsdp_wrapped_module and _checkpoint_wrapped_module are removed anywhere; module is removed at the
    beginning, or after another removed part. Nothing else changes, so that engines get the names in Hugging Face's
    checkpoint. The last part is the tensor's own name and always stays.
    """
    if "module" not in name and "_orig_mod" not in name:
        return name
    kept: list[str] = []
    behind_wrapper = True  # or at the beginning
    *modules, own = name.split(".")
    for part in modules:
        if part in _WRAPPERS and (part != "module" or behind_wrapper):
            behind_wrapper = True
            continue
        behind_wrapper = False
        kept.append(part)
    return ".".join([*kept, own])
