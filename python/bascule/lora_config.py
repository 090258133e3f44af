"""What each key of PEFT's LoraConfig means for a send, and the description that travels with an adapter.

Nothing here needs torch or peft: a config is a mapping, as adapter_config.json has it.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .errors import BasculeError


class Key(NamedTuple):
    """What happens with one key of the config.

    adapter: what register_adapter() does with it; merged: what register_model(…, adapters="merge") does.
    "sent": it stands in the description, or its tensors are sent. "folded": its effect is in the tensors that are sent.
    "harmless": it does not matter to an engine. "refused": any other value than the default is refused.
    """

    adapter: str
    merged: str
    default: Any = None


_VARIANT = Key("refused", "refused")
KEYS: dict[str, Key] = {
    "r": Key("sent", "folded", 8),
    "rank_pattern": Key("sent", "folded", {}),
    "target_modules": Key("sent", "folded"),
    "exclude_modules": Key("sent", "folded"),
    "layers_to_transform": Key("sent", "folded"),
    "layers_pattern": Key("sent", "folded"),
    "fan_in_fan_out": Key("sent", "folded", False),
    "modules_to_save": Key("sent", "folded"),
    "base_model_name_or_path": Key("sent", "harmless"),
    "revision": Key("sent", "harmless"),
    "task_type": Key("sent", "harmless"),
    "auto_mapping": Key("sent", "harmless"),
    "peft_type": Key("sent", "folded", "LORA"),
    "peft_version": Key("sent", "harmless"),
    "lora_alpha": Key("folded", "folded", 8),
    "alpha_pattern": Key("folded", "folded", {}),
    "use_rslora": Key("folded", "folded", False),
    "lora_dropout": Key("harmless", "harmless", 0.0),
    "inference_mode": Key("harmless", "harmless", False),
    "megatron_core": Key("harmless", "harmless", "megatron.core"),
    "loftq_config": Key("harmless", "harmless", {}),
    "eva_config": Key("harmless", "harmless"),
    "corda_config": Key("harmless", "harmless"),
    "lora_ga_config": Key("harmless", "harmless"),
    "qalora_group_size": Key("harmless", "harmless", 16),
    "ensure_weight_tying": Key("harmless", "harmless", False),
    "runtime_config": Key("harmless", "harmless"),
    "init_lora_weights": Key("refused", "folded", True),  # see _CHANGES_THE_BASE
    "bias": Key("refused", "folded", "none"),
    "target_parameters": Key("refused", "refused"),
    "trainable_token_indices": Key("refused", "refused"),
    "lora_bias": Key("refused", "refused", False),
    "megatron_config": Key("refused", "refused"),
    "layer_replication": Key("refused", "refused"),
    "use_dora": Key("refused", "refused", False),
    "use_qalora": Key("refused", "refused", False),
    "use_bdlora": _VARIANT,
    "alora_invocation_tokens": _VARIANT,
    "velora_config": _VARIANT,
    "kasa_config": _VARIANT,
    "monteclora_config": _VARIANT,
    "arrow_config": _VARIANT,
}

_WHY = {
    "init_lora_weights": "it changed the base weights when the adapter was made, so the adapter alone does not fit the "
                         "base model that engines have; convert the adapter with PEFT's save_pretrained(…, "
                         'path_initial_model_for_weight_conversion=…), or send merged weights (adapters="merge")',
    "bias": "it also trains the base model's biases, which engines do not load with an adapter; use bias=\"none\", or send "
            'merged weights (adapters="merge")',
    "target_parameters": "adapters of bare parameters, such as fused experts, are not sent; target the linear modules",
    "trainable_token_indices": "single rows of an embedding are not sent; target the embedding, or name it in "
                               "modules_to_save",
}
_CHANGES_THE_FORWARD_PASS = "it changes the forward pass in a way that is not supported; train the adapter without it"
_CHANGES_THE_BASE = re.compile("(pissa|corda).*|olora|loftq|lora_ga", re.IGNORECASE)
_HARMLESS_INITS = ("true", "false", "gaussian", "eva", "orthogonal", "mica")


@functools.lru_cache(1 << 16)  # more than re keeps: some adapters have a key for each module
def _expression(key: str) -> re.Pattern[str]:
    """PEFT's expression for a key of rank_pattern and alpha_pattern. Raises re.error."""
    return re.compile(rf"(.*\.)?({key})$")


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _is_pattern(pattern: Any, is_value: Callable[[Any], bool]) -> bool:
    try:
        return pattern is None or (isinstance(pattern, dict) and all(map(_expression, pattern)) and
                                   all(map(is_value, pattern.values())))
    except (re.error, TypeError, RecursionError):
        return False


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) and not isinstance(each, bool) for each in value)


def _is_target(value: Any) -> bool:
    try:
        return value is None or _is_list(value, str) or (isinstance(value, str) and bool(re.compile(value)))
    except (re.error, RecursionError):
        return False


# What Bascule computes with, and what names modules. A config may come from a file of any origin.
_VALID: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "r": ("a whole number above 0", _is_rank),
    "lora_alpha": ("a number", _is_number),
    "use_rslora": ("true or false", lambda value: isinstance(value, bool)),
    "rank_pattern": ("ranks by regular expressions", lambda value: _is_pattern(value, _is_rank)),
    "alpha_pattern": ("numbers by regular expressions", lambda value: _is_pattern(value, _is_number)),
    "target_modules": ("names of modules, or one regular expression", _is_target),
    "exclude_modules": ("names of modules, or one regular expression", _is_target),
    "modules_to_save": ("names of modules", lambda value: value is None or _is_list(value, str)),
    "layers_to_transform": ("numbers of layers", lambda value: value is None or _is_list([value], int) or _is_list(value, int)),
    "layers_pattern": ("names of lists of layers", _is_target),
    "auto_mapping": ("a mapping", lambda value: value is None or isinstance(value, dict)),
}


def check_config(config: Mapping[str, Any], kind: str = "adapter", defaults: Mapping[str, Any] | None = None,
                 what: str = "the adapter") -> None:
    """Raises BasculeError (INVALID_ARGUMENT), which names the first key that cannot be sent, its value, and a way out.

    kind: "adapter" or "merged", a column of KEYS. defaults: of the installed PEFT's keys. A key that KEYS does not have may
    have its default or, if that is not known, be off (None, False or empty); anything else is refused.
    """
    if (peft_type := _plain(config.get("peft_type"))) != "LORA":
        raise BasculeError(f"{what}: expected the peft_type LORA, found {peft_type!r}; no other kind of adapter can be sent",
                           "INVALID_ARGUMENT")
    defaults = defaults or {}
    for name, value in config.items():
        value = _plain(value)
        if name not in KEYS:
            if value != _plain(defaults[name]) if name in defaults else value:
                raise BasculeError(f"{what}: its config has {name} = {value!r}, a key of PEFT that Bascule does not know; "
                                   "engines might compute something else; expected its default", "INVALID_ARGUMENT")
        elif name in _VALID and not _VALID[name][1](value):
            raise BasculeError(f"{what}: its config has {name} = {value!r:.200}; expected {_VALID[name][0]}",
                               "INVALID_ARGUMENT")
        elif value and value != KEYS[name].default and (why := _refusal(name, value, kind)):
            raise BasculeError(f"{what}: its config has {name} = {value!r}: {why}", "INVALID_ARGUMENT")


def _refusal(name: str, value: Any, kind: str) -> str:
    """Why a key's value cannot be sent; empty if it can."""
    if name == "init_lora_weights" and not changes_base({name: value}):
        return "" if str(value).lower() in _HARMLESS_INITS else _CHANGES_THE_FORWARD_PASS
    return _WHY.get(name, _CHANGES_THE_FORWARD_PASS) if getattr(KEYS[name], kind) == "refused" else ""


def changes_base(config: Mapping[str, Any]) -> bool:
    """Whether the base weights were changed when the adapter was made."""
    return bool(_CHANGES_THE_BASE.fullmatch(str(config.get("init_lora_weights"))))


def describe_adapter(config: Mapping[str, Any], ranks: Mapping[str, int], base_class: tuple[str, str] | None = None) -> str:
    """The text that travels with an adapter whose scale is folded into its tensors: an adapter_config.json.

    ranks: of all adapted modules, by their names in the base model. base_class: name and module of the base model's
    class. In any reader, the scale of each module is 1: lora_alpha is r, alpha_pattern equals rank_pattern, use_rslora is
    false. Equal input gives equal text.
    """
    pattern = config.get("rank_pattern") or {}
    pattern = {key: pattern[key] for key in sorted(pattern)}  # as in the text: the first match counts
    rank = config.get("r", KEYS["r"].default)
    if any(pattern_value(pattern, module, rank) != found for module, found in ranks.items()):
        pattern = {f"^{re.escape(module)}": found for module, found in sorted(ranks.items()) if found != rank}
    described = {key: _plain(value) for key, value in config.items() if key != "runtime_config"}
    described |= {"r": rank, "lora_alpha": rank, "rank_pattern": pattern, "alpha_pattern": pattern, "use_rslora": False,
                  "inference_mode": True}
    if base_class is not None:
        described["auto_mapping"] = dict(zip(("base_model_class", "parent_library"), base_class))
    return json.dumps(described, indent=2, sort_keys=True)


def pattern_value(pattern: Mapping[str, Any] | None, module: str, default: Any) -> Any:
    """PEFT's rule for rank_pattern and alpha_pattern: the first key that matches the end of the module's name."""
    for key, value in (pattern or {}).items():
        if _expression(key).match(module):
            return value
    return default


def scale_of(config: Mapping[str, Any], module: str, rank: int) -> float:
    """The factor of B·A by PEFT's rules, for a module's name in the base model and its rank."""
    alpha = pattern_value(config.get("alpha_pattern"), module, config.get("lora_alpha", KEYS["lora_alpha"].default))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def parsed(text: str, what: str) -> dict[str, Any]:
    """The config in an adapter_config.json, or in a description. Raises BasculeError (DATA_LOSS)."""
    try:
        config = json.loads(text)
        if isinstance(config, dict) and "peft_type" in config:
            return config
    except (ValueError, RecursionError):
        pass
    raise BasculeError(f'{what}: expected PEFT\'s adapter_config.json ({{"peft_type": "LORA", …}}), found {text[:80]!r}',
                       "DATA_LOSS")


def _plain(value: Any) -> Any:
    """As JSON has it. Sets become sorted lists: they have no order."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if isinstance(value, str):
        return str(getattr(value, "value", value))  # PEFT's enums are strings
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return {key: _plain(each) for key, each in vars(value).items() if not key.startswith("_")}
    return value
