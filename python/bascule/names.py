"""The names under which tensors travel."""

from __future__ import annotations

# What wrappers put before the names of the module that they wrap.
_WRAPPERS = {
    "module",  # DistributedDataParallel, DeepSpeed
    "_orig_mod",  # torch.compile
    "_fsdp_wrapped_module",  # FullyShardedDataParallel
    "_checkpoint_wrapped_module",  # activation checkpointing
}


def hf_names(name: str) -> str:
    """The name of a tensor in its model, without what wrappers of PyTorch put into it.

    "_orig_mod.module.model.layers.0._checkpoint_wrapped_module.mlp.weight" is "model.layers.0.mlp.weight". Taken away
    are the parts _orig_mod, _fsdp_wrapped_module and _checkpoint_wrapped_module wherever they stand, and module where
    it comes first, or behind one of these. Nothing else is changed: engines that know a model by its names in Hugging
    Face's checkpoint find them. The last part is the tensor's own, and stays whatever it is called.
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
