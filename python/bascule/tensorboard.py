"""Writes a bascule-train run's metrics.jsonl to TensorBoard as scalars, each step as soon as its line is there.

    bascule tensorboard out/run --logdir out/tensorboard

It needs torch and tensorboard, or tensorboardX.
"""

from __future__ import annotations

import json
import operator
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import BasculeError

_LOOK_EVERY = 0.5  # seconds


def follow(run: str, logdir: str, *, once: bool = False, stopped: Callable[[], bool] = lambda: False) -> int:
    """Writes each step of `run` (metrics.jsonl, or its folder) to `logdir`; returns how many steps it wrote.

    Blocks until `stopped` returns True, or Ctrl-C; the run may start later. With `once` it writes the present steps and
    returns. If the run was resumed from an earlier step (--resume), its new steps replace those after that step.

    Raises BasculeError: NOT_FOUND if the file cannot be read or, with `once`, does not exist; DATA_LOSS names a
    malformed line; FAILED_PRECONDITION if `logdir` cannot be written, or no TensorBoard writer is installed.
    """
    lines = _Lines(Path(run))
    if once and not lines.file().is_file():
        raise BasculeError(f"{lines.file()}: expected metrics.jsonl of a run, or its folder, found nothing", "NOT_FOUND")
    writer_of = _writer()
    writer, written, last = None, 0, None
    try:
        while True:
            over = once or stopped()
            for step, values in lines.read():
                if writer is None or (last is not None and step <= last):
                    if writer is not None:
                        writer.close()
                    writer = writer_of(logdir, purge_step=step)
                for name, value in values:
                    writer.add_scalar(name, value, step)
                writer.flush()
                last, written = step, written + 1
            if over:
                return written
            time.sleep(_LOOK_EVERY)
    except KeyboardInterrupt:
        return written
    except OSError as error:
        raise BasculeError(f"{logdir}: {error}", "FAILED_PRECONDITION") from None
    finally:
        if writer is not None:
            writer.close()


def scalars(line: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields each number of a step with its name ("seconds/train"). Skips list items that name no engine or worker."""
    for key, value in line.items():
        if isinstance(value, bool) or key == "step":
            continue
        if isinstance(value, (int, float)):
            yield prefix + key, float(value)
        elif isinstance(value, dict):
            yield from scalars(value, f"{prefix}{key}/")
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict) and (name := each.get("worker") or each.get("engine")):
                    yield from scalars(each, f"{prefix}{key}/{str(name).partition('://')[2] or name}/")


class _Lines:
    """Reads whole lines of metrics.jsonl (given the file or its folder) as the file grows or is written anew."""

    def __init__(self, run: Path):
        self._run, self._read, self._inode, self._number = run, 0, 0, 0

    def file(self) -> Path:
        return self._run / "metrics.jsonl" if self._run.is_dir() else self._run

    def read(self) -> Iterator[tuple[int, list[tuple[str, float]]]]:
        """Yields the step and the scalars of each new line."""
        try:
            opened = self.file().open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise BasculeError(f"{self.file()}: {error.strerror}", "NOT_FOUND") from None
        with opened:
            status = os.fstat(opened.fileno())
            if status.st_ino != self._inode or status.st_size < self._read:  # written anew
                self._inode, self._read, self._number = status.st_ino, 0, 0
            opened.seek(self._read)
            for text in opened:
                if not text.endswith(b"\n"):
                    return
                self._read += len(text)
                self._number += 1
                if text.strip(b" \t\r\n\0"):  # a power failure can leave zeros
                    yield self._parsed(text)

    def _parsed(self, text: bytes) -> tuple[int, list[tuple[str, float]]]:
        try:
            line = json.loads(text)
            step = line["step"]
            if isinstance(step, bool) or not 0 <= operator.index(step) < 2**63:
                raise ValueError
            return step, list(scalars(line))
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            raise BasculeError(f'{self.file()}:{self._number}: expected an object with a whole number as "step" and numbers '
                               f"that fit a double, found {text[:80]!r}", "DATA_LOSS") from None


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
