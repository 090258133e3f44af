"""Versions that lack tensors of a quantised model, of which vLLM's loader does not report what it loaded."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")
torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402
from vllm.model_executor.layers.linear import LinearBase  # noqa: E402
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info  # noqa: E402

import bascule  # noqa: E402
from bascule.vllm.load import _absent, _check_came, _check_tied, _tied  # noqa: E402


class Linear(LinearBase):
    def __init__(self, weight=None):
        torch.nn.Module.__init__(self)
        self.weight = weight if weight is not None else torch.nn.Parameter(torch.ones(4, 3))
        self.register_parameter("bias", None)


def model(**loaded):
    """Layers, of whose 12 elements each `loaded` ones came."""
    layers = torch.nn.ModuleDict({name: Linear() for name in loaded})
    for name, numel in loaded.items():
        info = get_layerwise_info(layers[name])
        info.load_numel, info.load_numel_total = numel, 12
    return layers


@pytest.mark.parametrize("absent", [{"down.weight", "up.weight"}, None], ids=["known", "unknown"])
def test_a_layer_that_got_nothing_is_named(absent):
    with pytest.raises(bascule.BasculeError, match="only 0 of the 12 elements of down came") as error:
        _check_came(model(up=12, down=0), set(), absent)
    assert ("; 2 of the checkpoint's tensors are missing, such as down.weight" in str(error.value)) == (absent is not None)


def test_a_linear_layer_that_got_a_part_is_named_if_the_version_lacks_a_tensor():
    with pytest.raises(bascule.BasculeError, match="only 8 of the 12 elements of up came; 1 of .*, such as gate"):
        _check_came(model(up=8), set(), {"gate.weight"})
    _check_came(model(up=8), set(), None)  # it may be padded
    _check_came(model(up=8, down=0), set(), set())  # all came that the checkpoint has


def test_a_tied_layer_gets_nothing():
    layers = model(embed=12, head=0)
    layers["head"].weight = layers["embed"].weight
    assert _tied(layers) == {layers["head"]}
    _check_came(layers, _tied(layers), {"head.weight"})


def test_a_head_that_differs_from_the_embedding_to_which_it_is_tied_is_refused():
    layers = torch.nn.ModuleDict({"embed": Linear(), "head": Linear()})
    layers["head"].weight = layers["embed"].weight
    _check_tied(layers, {"embed.weight": torch.ones(4, 3)})
    _check_tied(layers, {"embed.weight": torch.ones(4, 3), "head.weight": torch.ones(4, 3)})
    with pytest.raises(bascule.BasculeError, match="tensors embed.weight and head.weight are one tensor"):
        _check_tied(layers, {"embed.weight": torch.ones(4, 3), "head.weight": torch.zeros(4, 3)})


def test_the_names_of_a_checkpoint_in_one_file_or_several(tmp_path):
    one, several, none = tmp_path / "one", tmp_path / "several", tmp_path / "none"
    for folder in (one, several, none):
        folder.mkdir()
    save_file({"a": torch.ones(1), "b": torch.ones(1)}, one / "model.safetensors")
    (several / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "1", "b": "2", "c": "2"}}))

    def absent(folder):
        return _absent(SimpleNamespace(model=str(folder), revision=None), {"a": 1, "more": 2})

    assert absent(one) == {"b"} and absent(several) == {"b", "c"} and absent(none) is None
