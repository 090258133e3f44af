#!/usr/bin/env python3
"""durations.py ROOT: fails, with file and line, if code outside transport/deadline.h puts an absl::Duration on a clock.

A duration from an endpoint or a flag can be longer than the clock's range, and then the sum with a time of that clock
lies in the past. on_clock() of transport/deadline.h limits it; absl's own conversions to std::chrono do not.
"""

import re
import sys
from pathlib import Path

FOLDERS = ("bench", "kernels", "python/src", "receiver", "schemes", "sender", "trainer_ref", "transport")
SUFFIXES = {".cpp", ".h", ".cu", ".cuh"}
CONVERSION = re.compile(r"\bToChrono\w+\s*\(")
ONLY = "transport/deadline.h"


def main() -> None:
    root = Path(sys.argv[1])
    wrong, seen = [], False
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in SUFFIXES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not CONVERSION.search(line):
                continue
            name = str(path.relative_to(root))
            if name == ONLY:
                seen = True
            else:
                wrong.append(f"{name}:{number}: {line.strip()}")
    if wrong:
        sys.exit("\n".join(wrong) + f"\na duration is put on a clock without a limit; use on_clock() or Deadline ({ONLY})")
    if not seen:
        sys.exit(f"expected {ONLY} to convert durations, found no such line; name the new place in this check")


main()
