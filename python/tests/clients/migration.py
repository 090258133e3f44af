"""The programs, commands and settings that docs/guide/migration.md shows as diffs."""

import re
import shlex
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "migration.md"
ENDPOINT = "shm:///run/user/1000/grpo"


def diffs(section, endpoint):
    """The section's diffs as pairs of texts: before, and after, with this endpoint in place of the page's."""
    [part] = [part for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE) if part.startswith(f"From {section}\n")]
    blocks = re.findall(r"^```diff\n(.*?)^```$", part.replace(ENDPOINT, endpoint), re.MULTILINE | re.DOTALL)
    assert blocks, section
    return [tuple("".join(line[1:] for line in block.splitlines(keepends=True) if line[0] in (" ", sign)) for sign in "-+")
            for block in blocks]


def run(program, **names):
    """Runs a program that uses these names; returns all that it has."""
    exec(program, names)  # the page's own text
    return names


def command(line):
    """The variables and the words of a shell's command."""
    words = shlex.split(line)
    count = next(i for i, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:count]), words[count:]
