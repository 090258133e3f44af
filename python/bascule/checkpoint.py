"""Checkpoints as a trainer's weights: safetensors files, one tensor in memory at a time, by torch and safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import _core
from .errors import BasculeError
from .sender import Sender
from .tensors import TensorSpec


def send(checkpoint: str, endpoint: str, workers: int = 1, timeout: float = 60) -> _core.SendReport:
    """Sends all tensors of a safetensors file, or of a folder of them, once `workers` workers are there.

    Raises BasculeError: NOT_FOUND, INVALID_ARGUMENT and DATA_LOSS name the file; else as Sender.stream().
    """
    paths = _files(Path(checkpoint))
    try:
        import torch  # noqa: F401  safetensors' tensors are torch's
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise BasculeError(f"a checkpoint is read by torch and safetensors: {error}; pip install torch safetensors",
                           "FAILED_PRECONDITION") from None
    with ExitStack() as opened:
        try:
            files = {file: opened.enter_context(safe_open(file, "pt")) for file in paths}
        except (SafetensorError, OSError) as error:
            raise BasculeError(f"{checkpoint}: {error}", "DATA_LOSS") from None
        with Sender(endpoint) as sender:
            sender.register_model(_specs(files), rename=None)
            sender.wait_for_workers(workers, timeout)
            return sender.stream((name, file.get_tensor(name)) for file in files.values() for name in file.keys())


def _files(checkpoint: Path) -> list[Path]:
    if checkpoint.is_dir():
        files = sorted(checkpoint.glob("*.safetensors"))
        if not files:
            raise BasculeError(f"{checkpoint}: expected files *.safetensors, found none", "NOT_FOUND")
        return files
    if not checkpoint.is_file():
        raise BasculeError(f"{checkpoint}: expected a safetensors file or a folder of them, found nothing", "NOT_FOUND")
    return [checkpoint]


def _specs(files: dict[Path, Any]) -> Iterator[TensorSpec]:
    seen: dict[str, Path] = {}
    for path, file in files.items():
        for name in file.keys():
            if name in seen:
                raise BasculeError(f"{path}: tensor {name} is in {seen[name].name}, too", "INVALID_ARGUMENT")
            seen[name] = path
            described = file.get_slice(name)
            yield TensorSpec(name, described.get_dtype(), described.get_shape())
