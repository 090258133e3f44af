#!/usr/bin/env python3
"""structure.py ROOT: fails, with the file, if a part of the core has outgrown its structure.

The class Fleet has at most 40 functions: separate state belongs in a separate class. The headers sender.h and
receiver.h are for users: no other source of their folders includes them. The planners take their events by Turn.
"""

import re
import sys
from pathlib import Path

MOST_FUNCTIONS = 40
PLANNERS = ("sender/fleet/fleet.cpp", "schemes/nccl/delivery_planner.cpp", "schemes/relay/routes.cpp")


def functions(source: str, name: str) -> int:
    """Returns how many functions the class declares, constructors and operators included."""
    body = re.search(rf"^class {name} {{$(.*?)^}};$", re.sub(r"//.*", "", source), re.M | re.S)[1]
    while (shorter := re.sub(r"\{[^{}]*\}", ";", body)) != body:
        body = shorter
    return sum("(" in declaration for declaration in body.split(";"))


def main() -> None:
    root = Path(sys.argv[1])
    wrong = []
    if (found := functions((root / "sender/fleet/fleet.h").read_text(), "Fleet")) > MOST_FUNCTIONS:
        wrong.append(f"sender/fleet/fleet.h: expected at most {MOST_FUNCTIONS} functions in Fleet, found {found}")
    for part in ("sender", "receiver"):
        for path in sorted((root / part).rglob("*")):
            face = f"#include <bascule/{part}/{part}.h>"
            if path.suffix in (".cpp", ".h") and path.name != f"{part}.cpp" and face in path.read_text():
                wrong.append(f"{path.relative_to(root)}: {face} is for users; include what declares the name")
    for planner in PLANNERS:
        if not re.search(r"\bturn_?\.begin\(event, .*\bturn_?\.take\(\);", (root / planner).read_text(), re.S):
            wrong.append(f"{planner}: expected on() to begin and end its turn by transport/turn.h")
    if wrong:
        sys.exit("\n".join(wrong))


main()
