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

from ._checks import shown
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


_LITERAL = re.compile(r"\^?((?:[\w.-]|\\[.-])*)")  # keys that only match strings as long as they are


@functools.lru_cache(1 << 16)  # more than re keeps: some adapters have a key for each module
def _expression(key: str) -> re.Pattern[str]:
    """PEFT's expression for a key of rank_pattern and alpha_pattern. Raises re.error."""
    return re.compile(rf"(.*\.)?({key})$")


class Pattern:
    """A rank_pattern or alpha_pattern by PEFT's rule: the first key that matches the end of a module's name counts.

    A key is only compared with names that it may match: if each module has its own, most pairs are ruled out without.
    """

    def __init__(self, pattern: Mapping[str, Any] | None):
        self._pairs = list((pattern or {}).items())
        self._by_text: dict[str, list[int]] = {}
        self._by_size: dict[int, dict[int, list[int]]] = {}  # and by the number of dots
        self._others: list[int] = []
        for number, (key, _) in enumerate(self._pairs):
            if found := _LITERAL.fullmatch(key):
                text = found[1].replace("\\", "")
                self._by_text.setdefault(text, []).append(number)
                self._by_size.setdefault(len(text), {}).setdefault(text.count("."), []).append(number)
            else:
                self._others.append(number)

    def value(self, module: str, default: Any) -> Any:
        """The value for a module's name in the base model. Raises re.error."""
        for number in self._candidates(module):
            key, value = self._pairs[number]
            if _expression(key).match(module):
                return value
        return default

    def _candidates(self, name: str) -> list[int]:
        """The numbers of the keys that may match, in order.

        A literal key matches a string that it equals. It can only match another one in which a dot of the key stands for
        another character; that string is as long and has fewer dots.
        """
        name, found, begin = name.removesuffix("\n"), list(self._others), 0  # $ also matches before a last newline
        while True:
            end = name[begin:]
            found += self._by_text.get(end, ())
            for dots, numbers in self._by_size.get(len(end), {}).items():
                if dots > end.count("."):
                    found += numbers
            if not (begin := name.find(".", begin) + 1):
                return sorted(found)


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30


def _is_pattern(pattern: Any, is_value: Callable[[Any], bool]) -> bool:
    try:
        return pattern is None or (isinstance(pattern, dict) and all(map(is_value, pattern.values())) and
                                   all(_LITERAL.fullmatch(key) or _expression(key) for key in pattern))
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
        try:
            value = _plain(value)
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:  # PEFT's files may have NaN and Infinity
            raise BasculeError(f"{what}: its config has {name} = {shown(value)}, which JSON cannot express ({error}), and "
                               "engines read the config as JSON", "INVALID_ARGUMENT") from None
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
    by_module = Pattern(pattern)
    if any(by_module.value(module, rank) != found for module, found in ranks.items()):
        pattern = {f"^{re.escape(module)}": found for module, found in sorted(ranks.items()) if found != rank}
    described = {key: _plain(value) for key, value in config.items() if key != "runtime_config"}
    described |= {"r": rank, "lora_alpha": rank, "rank_pattern": pattern, "alpha_pattern": pattern, "use_rslora": False,
                  "inference_mode": True}
    if base_class is not None:
        described["auto_mapping"] = dict(zip(("base_model_class", "parent_library"), base_class))
    return json.dumps(described, indent=2, sort_keys=True)


def scale_by(config: Mapping[str, Any]) -> Callable[[str, int], float]:
    """The factor of B·A by PEFT's rules, as a function of a module's name in the base model and its rank."""
    alphas, alpha = Pattern(config.get("alpha_pattern")), config.get("lora_alpha", KEYS["lora_alpha"].default)
    rslora = config.get("use_rslora")
    return lambda module, rank: alphas.value(module, alpha) / (math.sqrt(rank) if rslora else rank)


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
