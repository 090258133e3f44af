"""metrics.jsonl of a run of bascule-train as scalars of TensorBoard, a step as soon as its line is there.

    bascule tensorboard out/run --logdir out/tensorboard

It needs the package tensorboard, and torch's or tensorboardX's writer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import BasculeError

_LOOK_EVERY = 0.5  # seconds


def follow(run: str, logdir: str, *, once: bool = False, stopped: Callable[[], bool] = lambda: False) -> int:
    """Writes each step of `run`, a folder with metrics.jsonl or that file, to `logdir`; how many it wrote.

    once: what is there; else until `stopped`, or Ctrl-C. A run that went on behind an earlier step (--resume) replaces
    the steps behind that. Raises BasculeError: NOT_FOUND, with `once`; DATA_LOSS names a line that is none.
    """
    file = Path(run) / "metrics.jsonl" if Path(run).is_dir() else Path(run)
    if once and not file.is_file():
        raise BasculeError(f"{file}: expected metrics.jsonl of a run, or its folder, found nothing", "NOT_FOUND")
    writer_of = _writer()
    lines, writer, written, last = _Lines(file), None, 0, None
    try:
        while True:
            over = once or stopped()
            for line in lines.read():
                step = line.get("step")
                if not isinstance(step, int):
                    raise BasculeError(f"{file}: expected a number as \"step\", found {json.dumps(line)[:80]}", "DATA_LOSS")
                if writer is None or (last is not None and step <= last):
                    if writer is not None:
                        writer.close()
                    writer = writer_of(logdir, purge_step=step)
                for name, value in scalars(line):
                    writer.add_scalar(name, value, step)
                writer.flush()
                last, written = step, written + 1
            if over:
                return written
            time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        return written
    finally:
        if writer is not None:
            writer.close()


def scalars(line: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Each number of a step, by a name with slashes: "seconds/train"; of lists those with a name ("engine", "worker")."""
    for key, value in line.items():
        if isinstance(value, bool) or key == "step":
            continue
        if isinstance(value, (int, float)):
            yield prefix + key, value
        elif isinstance(value, dict):
            yield from scalars(value, f"{prefix}{key}/")
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict) and (name := each.get("worker") or each.get("engine")):
                    yield from scalars(each, f"{prefix}{key}/{name.partition('://')[2] or name}/")


class _Lines:
    """The whole lines of a file that grows, or begins anew."""

    def __init__(self, file: Path):
        self._file, self._read, self._inode = file, 0, 0

    def read(self) -> Iterator[dict[str, Any]]:
        try:
            opened = self._file.open("rb")
        except FileNotFoundError:
            return
        with opened:
            status = os.fstat(opened.fileno())
            if status.st_ino != self._inode or status.st_size < self._read:  # written anew
                self._inode, self._read = status.st_ino, 0
            opened.seek(self._read)
            for text in opened:
                if not text.endswith(b"\n"):
                    return
                self._read += len(text)
                try:
                    line = json.loads(text)
                except ValueError:
                    line = None
                if not isinstance(line, dict):
                    raise BasculeError(f"{self._file}: expected a JSON object a line, found {text[:80]!r}", "DATA_LOSS")
                yield line


def _writer() -> Callable[..., Any]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise BasculeError("expected torch and tensorboard, or tensorboardX; pip install tensorboardX",
                               "FAILED_PRECONDITION") from None
    return SummaryWriter
