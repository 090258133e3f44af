"""What a sender packs: where each tensor is, and what to compute while it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import BasculeError
from .tensors import renamed


class Place(NamedTuple):
    """Where a tensor is, which may be replaced: a module's dictionary or a mapping, and the key there."""

    owner: Any
    key: str
    transposed: bool = False  # for a factor of a product

    @property
    def tensor(self) -> Any:
        tensor = self.owner[self.key]
        return tensor.t() if self.transposed else tensor


class Product(NamedTuple):
    """scale · b a, which is added to a tensor."""

    b: Place
    a: Place
    scale: float


class Scaled(NamedTuple):
    """A layer of PEFT, whose scale must stay as it was registered."""

    path: str
    module: Any
    adapter: str
    scale: float


@dataclass
class Sent:
    """By the names under which they are sent: the tensors, those that are scaled, and those with a product."""

    places: dict[str, Place]
    scales: dict[str, float] = field(default_factory=dict)
    products: dict[str, Product] = field(default_factory=dict)
    description: str = ""
    scaled: list[Scaled] = field(default_factory=list)
    may_be_merged: bool = True  # whether the base weights may have the adapter in them

    def check_unchanged(self) -> None:
        """Raises BasculeError (FAILED_PRECONDITION) if PEFT scales a layer in another way now, or has merged it."""
        for path, module, adapter, scale in self.scaled:
            if module.scaling.get(adapter) != scale:
                raise BasculeError(f"module {path} scales its adapter by {module.scaling.get(adapter)}; it was registered with "
                                   f"{scale}, and this must not change: make another sender", "FAILED_PRECONDITION")
            if not self.may_be_merged and module.merged_adapters:
                raise BasculeError(f"module {path} has merged its adapter {module.merged_adapters[0]!r} into the base weights; "
                                   "call unmerge_adapter() first: a send merges by itself", "FAILED_PRECONDITION")

    def check_same_arithmetic(self, now: Sent) -> None:
        """Raises BasculeError (INVALID_ARGUMENT) if the model's adapter is another one now."""
        for what, one, two in (("scales", self.scales, now.scales), ("description", self.description, now.description),
                               ("modules", _scales_of(self.products), _scales_of(now.products))):
            if one != two:
                raise BasculeError(f"the model's adapter has other {what} than the registered one; make another sender for it",
                                   "INVALID_ARGUMENT")


def plain(model: Any, rename: Callable[[str], str] | None) -> Sent:
    """A module's or a mapping's tensors as they are."""
    return Sent({name: Place(owner, key) for name, (owner, key) in renamed(model, rename).items()})


def _scales_of(products: dict[str, Product]) -> dict[str, float]:
    return {name: product.scale for name, product in products.items()}
