#!/usr/bin/env python3
"""scheme_names.py ROOT: fails, with file and line, if code outside schemes/ and the tests names a scheme.

A literal that is a scheme's name ("shm"), or has the beginning of a URL that the code completes ("did you mean shm://"),
means that the code decides by the name instead of the registry's facts. A whole URL in a text is an example
("as shm:///run/user/1000/grpo"), and comments do not count. "auto" is also a value of flags: it counts only on a line
that mentions schemes. Code outside must not include a scheme's headers or use its namespace either.
"""

import ast
import re
import sys
from pathlib import Path

FOLDERS = ("bench", "kernels", "python/bascule", "python/src", "receiver", "sender", "trainer_ref", "transport")
SUFFIXES = {".cpp", ".h", ".cu", ".cuh", ".py"}
ALLOWED = {
    "bench/flat_broadcast.cpp",  # a baseline made of nccl's parts
    "bench/adapters.py",
    "bench/adapters_vllm.py",
    "bench/sharded.py",
    "bench/vllm_trainer.py",
    "bench/alternatives/double_buffer.py",  # measures shm itself beside another library
    "bench/python_package.py",
}


def names(root: Path) -> list[str]:
    """Returns the schemes' names, from their sources."""
    declared = re.compile(r'(?:return|Scheme \w+) ?\{\s*\.name = "([a-z0-9-]+)"')
    found = {name for source in (root / "schemes").rglob("*.cpp") for name in declared.findall(source.read_text())}
    if not {"auto", "shm"} <= found:
        sys.exit(f"scheme_names.py: expected to find the schemes' names in schemes/, found {sorted(found)}")
    return sorted(found)


def begins_url(known: list[str]) -> str:
    return rf'\b({"|".join(known)})://(?![/\w])'


def named_in_python(source: str, known: list[str]) -> set[int]:
    literals = {name + end for name in known for end in ("", ":", "://")}
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    lines = source.splitlines()
    return {node.lineno for node in nodes if node.value in literals - {"auto"} or
            re.search(begins_url(known), node.value) or node.value == "auto" and "scheme" in lines[node.lineno - 1]}


def named_in_cpp(source: str, known: list[str]) -> set[int]:
    literal = re.compile(rf'"({"|".join(known)})(:|://)?"')
    folders = "|".join(name.replace("-", "_") for name in (*known, "deliveries", "relay"))
    other = re.compile(rf"{begins_url(known)}|<bascule/schemes/({folders})/|\b({folders})::")
    lines = set()
    for number, line in enumerate(source.splitlines(), 1):
        code = re.sub(r"(^|\s)//( .*|$)", "", line)
        if other.search(code) or any(match[1] != "auto" or match[2] or "scheme" in code for match in literal.finditer(code)):
            lines.add(number)
    return lines


def main() -> None:
    root = Path(sys.argv[1])
    known = names(root)
    wrong = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or str(path.relative_to(root)) in ALLOWED:
                continue
            source = path.read_text()
            lines = source.splitlines()
            for number in sorted((named_in_python if path.suffix == ".py" else named_in_cpp)(source, known)):
                wrong.append(f"{path.relative_to(root)}:{number}: {lines[number - 1].strip()}")
    if wrong:
        sys.exit("\n".join(wrong) + "\ncode decides by the name of a scheme; ask the registry (schemes/registry.h), or "
                 "give Scheme (transport/scheme.h) the fact that is missing")


main()
