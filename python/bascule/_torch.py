"""Finds torch if this process has imported it. Numpy arrays alone never make Bascule import it."""

from __future__ import annotations

import sys
from typing import Any


def imported() -> Any:
    """The module torch, or None if it was not imported, or if another thread is still importing it.

    Until an import ends, the module is in sys.modules without most of its names, and no tensor of it can exist.
    """
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    return None if torch is None or getattr(spec, "_initializing", False) else torch
