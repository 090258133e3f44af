import pytest

from bascule import hf_names


@pytest.mark.parametrize("name, travels", [
    ("model.layers.0.mlp.weight", "model.layers.0.mlp.weight"),
    ("module.model.norm.weight", "model.norm.weight"),
    ("_orig_mod.module.model.layers.0._checkpoint_wrapped_module.mlp.weight", "model.layers.0.mlp.weight"),
    ("_fsdp_wrapped_module.model.layers.3._fsdp_wrapped_module.w", "model.layers.3.w"),
    ("module._orig_mod.w", "w"),
    ("model.module.weight", "model.module.weight"),  # a model's own module with that name
    ("encoder.modules_list.w", "encoder.modules_list.w"),
    ("base_model.model.model.layers.0.q_proj.base_layer.weight", "model.layers.0.q_proj.weight"),  # PEFT
    ("module.base_model.model.lm_head.weight", "lm_head.weight"),
    ("_orig_mod.module.base_model.model.module.w", "w"),
    ("model.base_model.model.w", "model.base_model.model.w"),
    ("base_model.w", "base_model.w"),
    ("base_layer.w", "base_layer.w"),
    ("base_model.model.base_layer.w", "base_layer.w"),
])
def test_only_wrappers_prefixes_are_taken_away(name, travels):
    assert hf_names(name) == travels


@pytest.mark.parametrize("name", ["module", "_orig_mod", "module.module", "_orig_mod.module"])
def test_a_tensor_that_is_called_like_a_wrapper_keeps_its_name(name):
    assert hf_names(name) == name.split(".")[-1]
