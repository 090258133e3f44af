"""Refuses to be imported in a subinterpreter. The package imports it before its extension module, whose types belong to
the process's first interpreter: another one would take them over, and the first could no longer use them."""

from importlib import import_module
from typing import Any


def _interpreters() -> Any:
    """Python's module about interpreters, which 3.13 renamed; None if this build lacks it."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


_known = _interpreters()
if _known is not None and _known.get_current() != _known.get_main():
    raise ImportError("bascule: expected the process's main interpreter, found a subinterpreter; import bascule in a thread or "
                      "a process instead (under mod_wsgi, set WSGIApplicationGroup %{GLOBAL})", name="bascule")
