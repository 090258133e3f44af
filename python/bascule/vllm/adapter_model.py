"""Makes vLLM's LoRAModel of an adapter's tensors and description, and checks that it fits the engine.

vLLM by itself accepts adapters that it then uses in part, or not at all: names with another prefix, modules that the
engine does not adapt, matrices that are smaller than the layer. Here each of them is refused, and the error names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import BasculeError
from ..lora import module_of
from ..lora_config import check_config, parsed


def lora_model(manager: Any, model_config: Any, adapter_id: int, weights: Mapping[str, Any], description: str) -> Any:
    """A LoRAModel in the host's memory, with copies of `weights`.

    manager: vLLM's WorkerLoRAManager. Raises BasculeError (INVALID_ARGUMENT), which names the key of the config, or the
    module and what does not fit. Modules that this rank lacks are not refused: another rank of pipeline parallelism may
    have them (unbound()).
    """
    from vllm.lora.peft_helper import PEFTHelper

    if not description:
        raise BasculeError("the sender sends a model, not an adapter: call register_adapter() at the trainer, or follow the "
                           "endpoint with BASCULE_ENDPOINT", "INVALID_ARGUMENT")
    config = parsed(description, "the description")
    check_config(config, what="the trainer's adapter")
    _check_base(config, model_config)
    if saved := config.get("modules_to_save"):
        raise BasculeError(f"the trainer's adapter replaces whole modules (modules_to_save = {saved}), and Bascule loads "
                           "only adapters into vLLM; send merged weights (adapters=\"merge\")", "INVALID_ARGUMENT")
    _check_ranks(weights, manager.lora_config.max_lora_rank)
    make = manager._lora_model_cls.from_lora_tensors
    mapper = getattr(manager._adapter_manager.model, "hf_to_vllm_mapper", None)
    if hasattr(mapper, "get_rename_mapper"):
        mapper = mapper.get_rename_mapper()
    options = {"device": "cpu", "dtype": manager.lora_config.lora_dtype, "weights_mapper": mapper,
               "model_vocab_size": getattr(manager, "vocab_size", None)}
    known = inspect.signature(make).parameters
    copies = {name: tensor.to("cpu", manager.lora_config.lora_dtype, copy=True) for name, tensor in weights.items()}
    helper = PEFTHelper.from_dict({**config, "vllm_max_position_embeddings": None})
    try:
        helper.validate_legal(manager.lora_config)
        made = make(lora_model_id=adapter_id, tensors=copies, peft_helper=helper,
                    **{key: value for key, value in options.items() if key in known})
    except (ValueError, RuntimeError) as error:
        raise BasculeError(f"vLLM refuses the trainer's adapter: {error}", "INVALID_ARGUMENT") from error
    _check_shapes(manager._adapter_manager, made)
    return made


def unbound(manager: Any, made: Any) -> set[str]:
    """The modules of the adapter that this rank does not have, or to which the engine gives no adapters."""
    modules, packed = manager._adapter_manager.modules, manager._adapter_manager.packed_modules
    return made.loras.keys() - modules.keys() - {part for parts in packed.values() for part in parts}


def _check_base(config: Mapping[str, Any], model_config: Any) -> None:
    theirs = (config.get("auto_mapping") or {}).get("base_model_class")
    ours = list(getattr(model_config.hf_config, "architectures", None) or ())
    if theirs and ours and theirs not in ours:
        raise BasculeError(f"the trainer's adapter is for a {theirs}; this engine's model is a {' or '.join(ours)}",
                           "INVALID_ARGUMENT")


def _check_ranks(weights: Mapping[str, Any], most: int) -> None:
    for name, tensor in weights.items():
        module, kind = module_of(name)
        if kind.startswith(("lora_A", "lora_embedding_A")) and tensor.shape[0] > most:
            raise BasculeError(f"module {module}: the trainer's adapter has the rank {tensor.shape[0]}, and this engine has "
                               f"room for {most} (--max-lora-rank)", "INVALID_ARGUMENT")


def _check_shapes(adapters: Any, made: Any) -> None:
    """Raises BasculeError for a module that is not as large as the engine's: vLLM would write a part of its memory."""
    places = {name: (module, None) for name, module in adapters.modules.items()}
    for name, parts in adapters.packed_modules.items():
        places |= {part: (adapters.modules[name], number) for number, part in enumerate(parts) if name in adapters.modules}
    for name, lora in made.loras.items():
        if lora.lora_a is None or lora.lora_b is None:
            raise BasculeError(f"module {name}: the trainer's adapter has only {'B' if lora.lora_a is None else 'A'}; "
                               "expected A and B", "INVALID_ARGUMENT")
        theirs = lora.lora_b.shape[0], lora.lora_a.shape[1]
        ours = _sizes(*places[name]) if name in places else (None, None)
        if any(own is not None and own != other for own, other in zip(ours, theirs)):
            raise BasculeError(f"module {name}: the trainer's adapter is for a weight of {list(theirs)}, and this engine's "
                               f"is {list(ours)}: it has another base model", "INVALID_ARGUMENT")


def _sizes(module: Any, part: int | None) -> tuple[int | None, int | None]:
    """The whole weight's outputs and inputs, over all ranks of tensor parallelism; None for what is not known."""
    layer = getattr(module, "base_layer", module)
    if hasattr(layer, "org_vocab_size") and hasattr(layer, "embedding_dim"):
        return (layer.embedding_dim, layer.org_vocab_size)
    inputs = getattr(layer, "input_size", None)
    if part is None:
        return (getattr(layer, "output_size", None), inputs)
    if hasattr(layer, "total_num_kv_heads"):  # output_sizes count a head once per rank that has it
        size = layer.head_size
        outputs = [layer.total_num_heads * size, layer.total_num_kv_heads * size,
                   layer.total_num_kv_heads * getattr(layer, "v_head_size", size)]
    else:
        outputs = getattr(layer, "output_sizes", [])
    return (outputs[part] if part < len(outputs) else None, inputs)
