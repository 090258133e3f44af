#!/usr/bin/env python3
"""Runs the commands and programs that README.md and docs/guide show, as they stand there.

    build/python-numpy/bin/python tests/tools/snippets.py [PAGE ...]     by default README.md and all of docs/guide

Each page gets an empty folder in which the repository's folders are links, and out/venv is the environment of the Python
that runs this, so that what a page shows as `out/venv/bin/python` is that one. The blocks of a page run in their order:

    ```sh       by bash, which stops at the first failure; what it left running is ended after the page
    ```python   by that Python; a block that begins with `# name.py` is a file, which later blocks run
    ```cpp      compiled, against the headers that scripts/wheel has installed

A block that cannot run has its reason in the line before it: `<!-- not run: needs a GPU -->`. A block that needs a package
which only some environments have names it: `<!-- run with: torch -->`. Other languages (text, json, cmake) are not run.
"""
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT_SECONDS = 300
BLOCK = re.compile(r"^(?:<!-- (?P<rule>not run|run with): (?P<why>[^\n]*?) -->\n)?```(?P<language>sh|bash|shell|console|python|cpp)\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)


def folder_for(page, parent):
    folder = pathlib.Path(tempfile.mkdtemp(prefix=page.stem + ".", dir=parent))
    for entry in ROOT.iterdir():
        if entry.name not in ("out", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "out").mkdir()
    (folder / "out" / "venv").symlink_to(sys.prefix)
    return folder


def command_of(block, folder):
    """The command that runs a block, or None if there is nothing to run yet."""
    text, language = block["text"], block["language"]
    if language == "python":
        name = re.match(r"# (\w+\.py)\n", text)
        path = folder / (name.group(1) if name else "block.py")
        path.write_text(text)
        return None if name else [sys.executable, path.name]
    if language == "cpp":
        (folder / "block.cpp").write_text(text)
        return ["g++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                f"-I{ROOT}/build/wheel/prefix/include", "block.cpp"]
    return ["bash", "-euo", "pipefail", "-c", text]


def run_page(page, parent):
    """Runs a page's blocks; returns how many ran, and what failed."""
    text = page.read_text()
    folder = folder_for(page, parent)
    count, groups = 0, []
    try:
        for block in BLOCK.finditer(text):
            place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}"
            missing = block["rule"] == "run with" and not importlib.util.find_spec(block["why"])
            if block["rule"] == "not run" or missing:
                continue
            command = command_of(block, folder)
            if not command:
                continue
            with (folder / "output.txt").open("w+") as output:  # a pipe would stay open in what goes on in the background
                run = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True)
                groups.append(run.pid)
                try:
                    status = run.wait(LIMIT_SECONDS)
                except subprocess.TimeoutExpired:
                    status = f"none within {LIMIT_SECONDS} s"
                output.seek(0)
                if status != 0:
                    return count, f"{place}: the block ended with status {status}:\n{block['text']}\n{output.read()[-4000:]}"
            count += 1
        return count, None
    finally:
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    pages = [pathlib.Path(page).resolve() for page in sys.argv[1:]]
    pages = pages or [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    failures = []
    parent = tempfile.mkdtemp(prefix="bascule-snippets.")
    try:
        for page in pages:
            count, failure = run_page(page, parent)
            print(f"snippets: {page.relative_to(ROOT)}: {count} ran{', then one failed' if failure else ''}", flush=True)
            failures += [failure] if failure else []
    finally:
        shutil.rmtree(parent)
    print("\n".join(failures))
    if failures:
        sys.exit(f"snippets: {len(failures)} pages show something that does not run")


if __name__ == "__main__":
    main()
