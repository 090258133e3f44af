#!/usr/bin/env python3
"""circles.py ROOT: fails if folders, or units, include one another in a circle. A unit is a header and the sources of
its name.

Include roots enforce the arrows between parts; this script enforces the arrows between the folders at the top, each of
which has several parts, and the arrows inside a part. Headers alone must form no circle. A source may close one if a
class or a function of its header is spread over several units, as in ALLOWED.
"""

import re
import sys
from pathlib import Path

FOLDERS = ("base", "bench", "kernels", "python/src", "receiver", "schemes", "sender", "trainer_ref", "transport")
HEADERS = {".h", ".cuh"}
SUFFIXES = HEADERS | {".cpp", ".cu"}
ALLOWED = [{f"{folder}/{name}" for name in names.split()} for folder, names in [
    ("kernels", "digest digest_function digest_table processor tiles"),  # they compute the type of the public digest.h
    ("kernels", "cuda_digest digest_device launch_device"),  # the same on a GPU
    ("kernels", "cuda_life cuda_memory"),  # memory has a life, found by a byte that is made under a DeviceGuard
    ("transport", "endpoint endpoint_options"),  # Endpoint::parse() has two sources
    ("transport/wire", "messages message_fields message_reader message_writer"),  # encode(), decode() of messages.h
    # An interpreter: values have methods, which run the machine, which makes values.
    ("trainer_ref/chat", "ast compare functions iterate loop machine methods print scope texts value"),
]]


def arrows(root: Path, suffixes: set[str]) -> dict[str, dict[str, str]]:
    """Returns, for each unit, the units that it includes, each with the file and line of an include."""
    files = {path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*")
             if path.suffix in SUFFIXES}
    graph = {str(file.with_suffix("")): {} for file in files}
    for file in files:
        for number, line in enumerate((root / file).read_text().splitlines() if file.suffix in suffixes else [], 1):
            if found := re.match(r'\s*#\s*include\s*(<bascule/|")([^>"]+)', line):
                other = Path(found[2]) if found[1] != '"' else file.parent / found[2]
                if other in files and other.with_suffix("") != file.with_suffix(""):
                    graph[str(file.with_suffix(""))].setdefault(str(other.with_suffix("")), f"{file}:{number}")
    return graph


def folders(graph: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Returns the same arrows between the folders at the top."""
    merged = {unit.split("/")[0]: {} for unit in graph}
    for unit, others in graph.items():
        for other, place in others.items():
            if (above := unit.split("/")[0]) != (below := other.split("/")[0]):
                merged[above].setdefault(below, place)
    return merged


def circles(graph: dict[str, dict[str, str]]) -> list[set[str]]:
    def reached(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            waiting += (new := graph[waiting.pop()].keys() - seen)
            seen |= new
        return seen

    reach = {unit: reached(unit) for unit in graph}
    return [set(circle) for circle in {frozenset(other for other in reach[unit] if unit in reach[other])
                                       for unit in graph if unit in reach[unit]}]


def main() -> None:
    root = Path(sys.argv[1])
    units = arrows(root, SUFFIXES)
    found = circles(units)
    for graph in (units, folders(units), arrows(root, HEADERS)):
        if wrong := [circle for circle in circles(graph) if graph is not units or circle not in ALLOWED]:
            break
    for circle in wrong:
        print("a circle:", *(f"  {place} includes {other}" for unit in sorted(circle)
                             for other, place in graph[unit].items() if other in circle), sep="\n")
    gone = [" ".join(sorted(circle)) for circle in ALLOWED if circle not in found]
    if wrong or gone:
        sys.exit("\n".join(f"no longer a circle, or a different one: {units}" for units in gone) +
                 "\nmove what both need into a lower header, or say in ALLOWED (tests/arrows/circles.py) why not")


main()
