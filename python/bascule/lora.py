"""Finds the LoRA adapters of a PEFT model, under the names of PEFT's files or merged under the base model's names.

Names: `base_model.model.` and the module's path in the base model, then `lora_A.weight` and so on, without the adapter's
name. The path has no `base_model.model.` of PeftModel, no `base_layer`, and nothing that hf_names() removes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .errors import BasculeError
from .lora_config import KEYS, Pattern, changes_base, check_config, describe_adapter, scale_by
from .names import hf_names
from .sent import Place, Product, Scaled, Sent
from .tensors import check_elements, is_module, is_torch, named_places, naming, travels_as

PREFIX = "base_model.model."  # of all names in PEFT's files
_A, _B = ("lora_A", "lora_embedding_A"), ("lora_B", "lora_embedding_B")
_WRAPPER = re.compile("OptimizedModule|(Distributed)?DataParallel|FullyShardedDataParallel|FSDP.*")
_UNSUPPORTED = {"ParamWrapper", "MultiheadAttention", "_ConvNd"}  # of PEFT's layers


class Layer(NamedTuple):
    """An adapted module: its path in the model, its name in the base model, and its factors."""

    path: str
    name: str
    module: Any
    kinds: tuple[str, str]  # the attributes that hold A and B
    a: Place
    b: Place
    rank: int
    scale: float


def config_of(model: Any, name: str) -> Any:
    """The PeftConfig of one of the model's adapters. Raises BasculeError (INVALID_ARGUMENT), which names all of them."""
    configs = _peft_model(model).peft_config
    if name not in configs:
        raise BasculeError(f"adapter {name!r}: the model has {', '.join(map(repr, configs))}", "INVALID_ARGUMENT")
    return configs[name]


def base_class(model: Any) -> tuple[str, str]:
    """Name and module of the class of the model that PEFT has wrapped.

    Not of what wraps it (torch.compile), nor the class that FSDP2 and others of torch derive from it, such as FSDPQwen2Model.
    """
    base = _peft_model(model)
    *_, base = _outer(base.get_base_model() if hasattr(base, "get_base_model") else base)
    own = next(each for each in type(base).__mro__ if not each.__module__.startswith("torch.distributed."))
    return own.__name__, own.__module__


def adapter_of(model: Any, name: str = "default") -> Sent:
    """An adapter alone, under the names of PEFT's files, its scale folded into each B, with its description.

    Also sends the modules in `modules_to_save`. Raises BasculeError (INVALID_ARGUMENT), which names the key of the config,
    the module or the tensor that cannot be sent.
    """
    config = config_of(model, name)
    check_config(_dict(config), "adapter", _defaults(config), f"adapter {name!r}")
    if why := base_changed_by(model, name):
        raise BasculeError(f"adapter {name!r}: {why}; engines have the original ones. Send merged weights "
                           '(adapters="merge")', "INVALID_ARGUMENT")
    layers = list(layers_of(model, name))
    places = places_of(model, name, layers)
    for tensor, place in places.items():
        _check_whole(tensor, place.tensor)
    scales = {_names(layer)[1]: layer.scale for layer in layers}
    ranks = {layer.name: layer.rank for layer in layers}
    return Sent(places, scales, description=describe_adapter(_dict(config), ranks, base_class(model)),
                scaled=_scaled(layers, name))


def base_changed_by(model: Any, name: str) -> str:
    """Which other adapter than `name` changed the base weights when it was made; empty if none did."""
    return next((f"adapter {other!r} of the same model has init_lora_weights = {config.init_lora_weights!r}, which changed the "
                 "base weights" for other, config in _peft_model(model).peft_config.items()
                 if other != name and changes_base(_dict(config))), "")


def places_of(model: Any, name: str, layers: Iterable[Layer]) -> dict[str, Place]:
    """The tensors of an adapter under the names of PEFT's files: of its `layers`, and of the modules in `modules_to_save`."""
    places: dict[str, Place] = {}
    paths: dict[str, str] = {}

    def add(travels: str, place: Place, path: str) -> None:
        if (other := paths.setdefault(travels, path)) != path:
            raise BasculeError(f"modules {other} and {path} would both be sent as {travels}", "INVALID_ARGUMENT")
        places[travels] = place

    for layer in layers:
        for travels, place in zip(_names(layer), (layer.a, layer.b)):
            add(travels, place, layer.path)
    for path, saved in _saved_modules(model, name):
        for key, owner, own in named_places(saved):
            add(PREFIX + hf_names(f"{path}.{key}"), Place(owner, own), path)
    return places


def merged_of(model: Any, name: str, rename: Callable[[str], str] | None = hf_names) -> Sent:
    """The base model with the adapter `name` merged: W + scale · B·A, under the base model's names.

    Modules in `modules_to_save` replace the base model's. rename: as for register_model(), after PEFT's own parts are gone.
    Raises BasculeError (INVALID_ARGUMENT), which names what cannot be merged.
    """
    config = config_of(model, name)
    check_config(_dict(config), "merged", _defaults(config), f"adapter {name!r}")
    layers = {layer.path: layer for layer in layers_of(model, name)}
    scaled = _scaled(layers.values(), name)
    found: dict[str, tuple[str, Place]] = {}  # the model's own name, and the place
    origins: dict[str, Any] = {}  # the base model's own tensor
    for original, base, place, origin in _base_places(model, name):
        travels = travels_as(base, rename)
        if travels in found:
            raise BasculeError(f"tensors {found[travels][0]} and {original} would both be sent as {travels}",
                               "INVALID_ARGUMENT")
        found[travels], origins[travels] = (original, place), origin
    places = {travels: place for travels, (_, place) in found.items()}
    products = {}
    for travels, (original, place) in found.items():
        with naming(travels, place.tensor):
            check_elements(place.tensor)
        path, _, own = original.rpartition(".base_layer.")
        if own == "weight" and path in layers:
            products[travels] = _product(layers.pop(path), travels, place)
    if layers:
        raise BasculeError(f"module {next(iter(layers))}: its adapter has no weight to merge into", "INVALID_ARGUMENT")
    _check_tied(places, products, origins)
    sent = Sent(places, products=products, scaled=scaled, may_be_merged=False)
    sent.check_unchanged()
    return sent


def layers_of(model: Any, name: str) -> Iterator[Layer]:
    """The modules with an adapter of this name. Raises BasculeError (INVALID_ARGUMENT), including if there are none."""
    none = True
    for path, module in model.named_modules():
        if not _is_layer(module):
            continue
        for kinds in zip(_A, _B):
            if name not in getattr(module, kinds[0], ()):
                continue
            if odd := _UNSUPPORTED.intersection(base.__name__ for base in type(module).__mro__):
                raise BasculeError(f"module {path}: its adapter is PEFT's {type(module).__name__}; only adapters of linear "
                                   f"modules, Conv1D and embeddings can be sent, not of {min(odd).strip('_')}",
                                   "INVALID_ARGUMENT")
            _check_not_in_copy(f"module {path}", path)
            _check_alone(path, module, name)
            a, b = (_place(getattr(module, kind), name) for kind in kinds)
            for kind, place in zip(kinds, (a, b)):
                _check_whole(f"{path}.{kind}", place.tensor)
            rank = _rank(path, a.tensor, b.tensor)
            base = hf_names(path + ".weight").removesuffix(".weight")
            none = False
            yield Layer(path, base, module, kinds, a, b, rank, float(module.scaling[name]))
    if none:
        raise BasculeError(f"adapter {name!r}: it adapts no module of the model", "INVALID_ARGUMENT")


def sent_from_file(config: Mapping[str, Any], tensors: Mapping[str, Any], what: str) -> Sent:
    """An adapter as PEFT's files have it, its scale folded into each B.

    Raises BasculeError (INVALID_ARGUMENT), which begins with `what` and names the key or the tensor.
    """
    check_config(config, "adapter", what=what)
    adapted, kept = _pairs(tensors, what), dict(tensors)
    wanted_rank, scale_for = Pattern(config.get("rank_pattern")), scale_by(config)
    if strange := sorted(name for name in tensors if not name.startswith(PREFIX)):
        raise BasculeError(f"{what}: expected names that begin with {PREFIX}, found {strange[0]}; engines would bind no module "
                           "to it", "INVALID_ARGUMENT")
    saved = tuple(config.get("modules_to_save") or ())
    scales, ranks = {}, {}
    for module, (a, b) in adapted.items():
        _check_not_in_copy(f"{what}: module {module}", module)
        rank = _rank(f"{what}: {module}", tensors[a], tensors[b])
        wanted = wanted_rank.value(module, config.get("r", KEYS["r"].default))
        if rank != wanted:
            raise BasculeError(f"{what}: the adapter of {module} has the rank {rank}, and its config says {wanted}",
                               "INVALID_ARGUMENT")
        scales[_sent_as(b)], ranks[hf_names(module + ".weight").removesuffix(".weight")] = scale_for(module, rank), rank
        kept.pop(f"{PREFIX}{module}.base_layer.weight", None)  # PEFT adds it for embeddings; engines have it
    whole = sorted(kept.keys() - {each for pair in adapted.values() for each in pair})
    copies = {name for name in whole if _is_saved(name.removeprefix(PREFIX).rpartition(".")[0], saved)}
    for name in whole:
        if name not in copies and not (config.get("ensure_weight_tying") and
                                       any(_equal(tensors[name], tensors[each]) for each in copies)):
            raise BasculeError(f"{what}: tensor {name} is neither the weight of lora_A or lora_B nor in modules_to_save; "
                               "engines would not load it", "INVALID_ARGUMENT")
    places: dict[str, Place] = {}
    for name in sorted(kept):
        if other := places.get(_sent_as(name)):
            raise BasculeError(f"{what}: tensors {other.key} and {name} would both be sent as {_sent_as(name)}",
                               "INVALID_ARGUMENT")
        places[_sent_as(name)] = Place(kept, name)
    if _WRAPPER.fullmatch(str((config.get("auto_mapping") or {}).get("base_model_class"))):
        config = {**config, "auto_mapping": None}  # it does not tell the base model's class
    return Sent(places, scales, description=describe_adapter(config, ranks))


def module_of(name: str) -> tuple[str, str]:
    """The module of a tensor of PEFT's files, by its name in the base model, and the rest of the tensor's name."""
    for kind in (*_A, *_B):
        module, dot, rest = name.removeprefix(PREFIX).partition(f".{kind}")
        if dot and rest in ("", ".weight"):
            return module, kind + rest
    module, _, own = name.removeprefix(PREFIX).rpartition(".")
    return module, own


# ----


def _peft_model(model: Any) -> Any:
    """The module to which PEFT has given adapters: `model`, or what it wraps. Raises BasculeError (INVALID_ARGUMENT)."""
    for each in _outer(model) if is_module(model) else ():
        if isinstance(getattr(each, "peft_config", None), dict):
            return each
    raise BasculeError(f"expected a model with PEFT's adapters, found {type(model).__name__}", "INVALID_ARGUMENT")


def _outer(model: Any) -> Iterator[Any]:
    """The model, and what wrappers such as torch.compile and DistributedDataParallel have within."""
    while model is not None:
        yield model
        model = next((model._modules[key] for key in ("_orig_mod", "module", "_fsdp_wrapped_module")
                      if model._modules.get(key) is not None), None)


def _names(layer: Layer) -> list[str]:
    """The names of A and B."""
    return [f"{PREFIX}{layer.name}.{kind}" + ("" if "embedding" in kind else ".weight") for kind in layer.kinds]


def _sent_as(name: str) -> str:
    """The name of a tensor of PEFT's files without what wrappers add: PEFT saves torch.compile's _orig_mod."""
    return PREFIX + hf_names(name.removeprefix(PREFIX))


def _scaled(layers: Iterable[Layer], name: str) -> list[Scaled]:
    return [Scaled(layer.path, layer.module, name, layer.module.scaling[name]) for layer in layers]


def _is_layer(module: Any) -> bool:
    return isinstance(getattr(module, "scaling", None), dict) and hasattr(module, "base_layer") and hasattr(module, "lora_A")


def _is_wrapper(module: Any) -> bool:
    """Whether PEFT trains a copy of a module here, for modules_to_save."""
    return "original_module" in module._modules and hasattr(module, "modules_to_save")


def _place(held: Any, name: str) -> Place:
    """In a ParameterDict the tensor itself, in a ModuleDict a linear module's weight."""
    return Place(held._parameters, name) if name in held._parameters else Place(held[name]._parameters, "weight")


def _check_alone(path: str, module: Any, name: str) -> None:
    """Raises BasculeError if a layer's adapter has more than the weights of A and B, such as a bias: it would not be sent."""
    for kind in module.adapter_layer_names:
        held = getattr(module, kind, None)
        if not is_module(held) or name not in held:
            continue
        part = held[name]
        tensors = {"": part} if is_torch(part) else {**part._parameters, **part._buffers, **part._modules}
        more = [key for key, each in tensors.items() if each is not None and key != ("weight" if is_module(part) else "")]
        if more or kind not in (*_A, *_B):
            raise BasculeError(f"module {path}: its adapter has {'.'.join([kind, *more[:1]])} beside the weights of A and B, and "
                               "only these are sent; train the adapter without it", "INVALID_ARGUMENT")


def _rank(what: str, a: Any, b: Any) -> int:
    for own, tensor in (("A", a), ("B", b)):
        if not tensor.is_floating_point():
            raise BasculeError(f"{what}: {own} of its adapter is {str(tensor.dtype).removeprefix('torch.')}; expected "
                               "floating-point numbers", "INVALID_ARGUMENT")
        if tensor.dim() != 2 or not tensor.numel():
            raise BasculeError(f"{what}: {own} of its adapter has the shape {list(tensor.shape)}; expected a whole matrix. "
                               "If it is sharded (FSDP, ZeRO-3), gather it first", "INVALID_ARGUMENT")
    if a.shape[0] != b.shape[1]:
        raise BasculeError(f"{what}: its adapter has A of {list(a.shape)} and B of {list(b.shape)}; expected as many rows in "
                           "A as columns in B", "INVALID_ARGUMENT")
    return int(a.shape[0])


def _check_whole(name: str, tensor: Any) -> None:
    sharded = type(tensor).__name__ == "DTensor" or type(getattr(tensor, "data", None)).__name__ == "DTensor"
    if sharded or hasattr(tensor, "ds_id") or getattr(tensor, "_fsdp_flattened", False):
        raise BasculeError(f"tensor {name} is sharded ({type(tensor).__name__}), and this process has only a part of it. Leave "
                           "adapters out of the sharding (fully_shard(…, ignored_params=…)), or gather each one into a "
                           "plain copy of the adapter on rank 0 (Sharded adapters in docs/guide/adapters.md)",
                           "INVALID_ARGUMENT")
    with naming(name, tensor):
        check_elements(tensor)


def active_adapter(model: Any) -> str:
    """The one adapter that the model computes with. Raises BasculeError (INVALID_ARGUMENT)."""
    layers = [module for module in _peft_model(model).modules() if _is_layer(module)]
    if any(layer.disable_adapters for layer in layers):
        raise BasculeError("the model's adapters are disabled (disable_adapter()); enable them to merge one",
                           "INVALID_ARGUMENT")
    active = sorted({name for layer in layers for name in layer.active_adapters
                     if name in layer.lora_A or name in layer.lora_embedding_A})
    if len(active) != 1:
        raise BasculeError(f"expected one active adapter to merge, found {', '.join(active) or 'none'}; choose it with "
                           "set_adapter()", "INVALID_ARGUMENT")
    return active[0]


def _saved_modules(model: Any, name: str) -> Iterator[tuple[str, Any]]:
    for path, module in model.named_modules():
        if _is_wrapper(module) and name in module.modules_to_save:
            yield path, module.modules_to_save[name]


def _base_places(model: Any, name: str) -> Iterator[tuple[str, str, Place, Any]]:
    """What is sent as the base model: the name in the model, without PEFT's parts, the place, and the base's own tensor."""
    dropped: set[str] = set()  # paths whose tensors are not the base model's
    replaced: dict[str, str] = {}  # paths that have another name
    originals: dict[str, dict[str, Any]] = {}  # of what replaces a module
    for path, module in model.named_modules(remove_duplicate=False):
        if _is_layer(module):
            dropped.update(f"{path}.{kind}" for kind in module.adapter_layer_names)
            replaced[f"{path}.base_layer"] = path
        elif _is_wrapper(module):
            chosen = f"modules_to_save.{name}" if name in module.modules_to_save else "original_module"
            dropped.update(f"{path}.{kind}" for kind in ("original_module", *(f"modules_to_save.{each}" for each in
                                                                              module.modules_to_save)) if kind != chosen)
            replaced[f"{path}.{chosen}"] = path
            originals[f"{path}.{chosen}"] = {own: owner[key] for own, owner, key in named_places(module.original_module)}
    for original, owner, key in named_places(model):
        parts = original.split(".")
        paths = {".".join(parts[:end]) for end in range(1, len(parts))}
        if paths & dropped:
            continue
        base, place = original, Place(owner, key)
        origin = place.tensor
        for path in sorted(paths & replaced.keys(), key=len, reverse=True):  # inner ones first: the outer paths stay
            base = replaced[path] + base[len(path):]
            origin = originals.get(path, {}).get(original[len(path) + 1:], origin)
        yield original, base.removeprefix(PREFIX), place, origin


def _product(layer: Layer, travels: str, place: Place) -> Product:
    weight, transposed = place.tensor, bool(layer.module.fan_in_fan_out) or "embedding" in layer.kinds[0]
    torch_name = str(weight.dtype).removeprefix("torch.")
    if torch_name not in ("float32", "bfloat16", "float16"):
        raise BasculeError(f"tensor {travels} is {torch_name}, and adapters are merged into float32, bfloat16 and float16; "
                           "send the adapter alone (register_adapter())", "INVALID_ARGUMENT")
    # The transposed product is Aᵀ Bᵀ.
    b, a = (layer.a._replace(transposed=True), layer.b._replace(transposed=True)) if transposed else (layer.b, layer.a)
    if tuple(weight.shape) != (b.tensor.shape[0], a.tensor.shape[1]):
        raise BasculeError(f"tensor {travels} is {list(weight.shape)}, and its adapter is for "
                           f"{[b.tensor.shape[0], a.tensor.shape[1]]}", "INVALID_ARGUMENT")
    return Product(b, a, layer.scale)


def _check_tied(places: Mapping[str, Place], products: Mapping[str, Product], origins: Mapping[str, Any]) -> None:
    """Engines tie what the base model ties, so both names must get the same elements."""
    first: dict[int, str] = {}
    for name, place in places.items():
        if not place.tensor.numel():
            continue
        other = first.setdefault(origins[name].data_ptr(), name)
        if other != name and _elements(places[other], products.get(other)) != _elements(place, products.get(name)):
            raise BasculeError(f"tensors {other} and {name} are one tensor in the base model (tied), and only one of them is "
                               "trained: merged they would differ, and engines keep them tied. Train with "
                               "ensure_weight_tying, untie them, or send the adapter alone (register_adapter())",
                               "INVALID_ARGUMENT")


def _elements(place: Place, product: Product | None) -> Any:
    """Equal for tensors that are sent with the same elements."""
    factors = (product.b, product.a) if product else ()
    return product and product.scale, [(each.tensor.data_ptr(), each.tensor.shape, each.tensor.stride())
                                       for each in (place, *factors)]


def _is_saved(path: str, saved: tuple[str, ...]) -> bool:
    """Whether modules_to_save has a module, or one around it. PEFT's rule: an entry is the end of its name, without a dot."""
    parts = path.split(".")
    return any(".".join(parts[:count]).endswith(saved) for count in range(1, len(parts) + 1))


def _equal(one: Any, two: Any) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and bool(one.equal(two))


def _check_not_in_copy(what: str, path: str) -> None:
    """Raises BasculeError for an adapted module that lies in a module of which PEFT keeps copies."""
    if copied := {"original_module", "modules_to_save"}.intersection(path.split(".")):
        raise BasculeError(f"{what}: it is adapted in a module that modules_to_save replaces as a whole, so its name has "
                           f"{min(copied)}, which no engine has; adapt modules outside of modules_to_save, or give each "
                           "adapter its own model", "INVALID_ARGUMENT")


def _pairs(tensors: Mapping[str, Any], what: str) -> dict[str, tuple[str, str]]:
    """The names of A and B by the module that they adapt."""
    found: dict[str, dict[str, str]] = {}
    for name in tensors:
        module, rest = module_of(name)
        if kind := rest.partition(".")[0] if rest.startswith("lora_") else "":
            other = found.setdefault(module, {}).setdefault(kind[-1], name)
            if other != name:
                raise BasculeError(f"{what}: the adapter of {module} has {other} and {name}; expected one A and one B",
                                   "INVALID_ARGUMENT")
    for module, pair in found.items():
        if set(pair) != {"A", "B"}:
            raise BasculeError(f"{what}: the adapter of {module} has {' and '.join(pair.values())}; expected A and B",
                               "INVALID_ARGUMENT")
    if not found:
        raise BasculeError(f"{what}: expected tensors of an adapter ({PREFIX}….lora_A.weight), found "
                           f"{min(tensors, default='none')}", "INVALID_ARGUMENT")
    return {module: (pair["A"], pair["B"]) for module, pair in sorted(found.items())}


def _dict(config: Any) -> dict[str, Any]:
    return dict(config.to_dict())


def _defaults(config: Any) -> dict[str, Any]:
    """The defaults of the installed PEFT's keys."""
    return {field.name: field.default if field.default is not dataclasses.MISSING else
            field.default_factory() if field.default_factory is not dataclasses.MISSING else None
            for field in dataclasses.fields(config)}
