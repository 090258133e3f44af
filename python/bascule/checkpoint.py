"""Sends a checkpoint's safetensors files, one tensor in memory at a time, or an adapter's folder.

It needs torch and safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

from . import _core
from .errors import BasculeError
from .lora import sent_from_file
from .lora_config import parsed
from .sender import Sender
from .tensors import TensorSpec, dtype_name

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of PEFT's adapters
_PAIRS = {"F4": "F4_X2"}  # safetensors counts 4-bit elements one by one, torch in pairs of one byte


def send(checkpoint: str, endpoint: str, workers: int = 1, timeout: float = 60) -> _core.SendReport:
    """Waits up to `timeout` seconds for `workers` workers, then sends them a checkpoint once and returns the report.

    checkpoint: a safetensors file or a folder. From a folder it sends the files that model.safetensors.index.json
    names, and refuses a tensor of the index that its file does not have; without this index, model.safetensors; without
    that, all *.safetensors files. A folder with PEFT's adapter_config.json is sent as register_adapter() sends an adapter.

    Raises BasculeError: NOT_FOUND, INVALID_ARGUMENT and DATA_LOSS name the file; FAILED_PRECONDITION without torch or
    safetensors. Also raises the errors of a Sender's wait_for_workers() and stream().
    """
    if not checkpoint and isinstance(checkpoint, str):
        raise BasculeError("expected a safetensors file or a folder of them, found an empty path", "INVALID_ARGUMENT")
    try:
        adapter = (Path(checkpoint) / _CONFIG).is_file()
        paths = {Path(checkpoint) / _WEIGHTS: set()} if adapter else _files(Path(checkpoint))
    except TypeError:
        raise BasculeError(f"checkpoint: expected a path, found {checkpoint!r:.200}", "INVALID_ARGUMENT") from None
    except OSError as error:
        raise BasculeError(f"checkpoint: {str(checkpoint):.200}: {error.strerror}", "NOT_FOUND") from None
    try:
        import torch  # noqa: F401  safetensors' tensors are torch's
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise BasculeError(f"reading a checkpoint needs torch and safetensors: {error}; pip install torch safetensors",
                           "FAILED_PRECONDITION") from None
    if adapter and not (Path(checkpoint) / _WEIGHTS).is_file():
        raise BasculeError(f"{checkpoint}: expected {_WEIGHTS} beside {_CONFIG}, found none; save the adapter with PEFT's "
                           f"save_pretrained(){_adapters_below(Path(checkpoint))}", "NOT_FOUND")
    with ExitStack() as opened:
        files = {}
        for path, names in paths.items():
            try:
                files[path] = opened.enter_context(safe_open(path, "pt"))
            except (SafetensorError, OSError) as error:
                raise BasculeError(f"{path}: {error}", "DATA_LOSS") from None
            if missing := sorted(names.difference(files[path].keys())):
                raise BasculeError(f"{path}: expected the tensor {missing[0]}, which the index names, "
                                   "found none of this name", "DATA_LOSS")
        with Sender(endpoint, expect_workers=workers) as sender:
            if adapter:
                (file,) = files.values()
                tensors = {name: file.get_tensor(name) for name in file.keys()}
                sent = sent_from_file(_config(Path(checkpoint)), tensors, str(checkpoint))
                sender._register_adapter(tensors, lambda: sent)
                sender.wait_for_workers(workers, timeout)
                return sender.send()
            sender.register_model(_specs(files), rename=None)
            sender.wait_for_workers(workers, timeout)
            return sender.stream((name, file.get_tensor(name)) for file in files.values() for name in file.keys())


def _config(folder: Path) -> dict[str, Any]:
    try:
        return parsed((folder / _CONFIG).read_text(errors="replace"), str(folder / _CONFIG))
    except OSError as error:
        raise BasculeError(f"{folder / _CONFIG}: {error.strerror}", "DATA_LOSS") from None


def _adapters_below(folder: Path) -> str:
    """The end of an error: the subfolders that have an adapter. PEFT saves any other than `default` in one of its name."""
    found = sorted(str(each.parent) for each in folder.glob(f"*/{_CONFIG}"))
    more = f" and {len(found) - 3} more subfolders" if len(found) > 3 else ""
    return f"; there are adapters in {', '.join(found[:3])}{more}: give the path of the one to send" if found else ""


def _files(checkpoint: Path) -> dict[Path, set[str]]:
    """The files to send, and the tensors that an index names in each."""
    if checkpoint.is_file():
        return {checkpoint: set()}
    if not checkpoint.is_dir():
        raise BasculeError(f"{checkpoint}: expected a safetensors file or a folder of them, found nothing", "NOT_FOUND")
    if (index := checkpoint / "model.safetensors.index.json").is_file():
        return _indexed(index)
    if (whole := checkpoint / "model.safetensors").is_file():
        return {whole: set()}
    if not (files := sorted(checkpoint.glob("*.safetensors"))):
        raise BasculeError(f"{checkpoint}: expected files *.safetensors, or PEFT's {_CONFIG}, found none"
                           f"{_adapters_below(checkpoint)}", "NOT_FOUND")
    return {file: set() for file in files}


def _indexed(index: Path) -> dict[Path, set[str]]:
    """The files that Hugging Face's index names, in the index's folder, and the tensors of each."""
    files: dict[Path, set[str]] = {}
    try:
        for name, file in sorted(json.loads(index.read_bytes())["weight_map"].items(), key=itemgetter(1)):
            files.setdefault(index.parent / file, set()).add(name)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BasculeError(f'{index}: expected {{"weight_map": {{tensor: file, …}}}}', "DATA_LOSS") from None
    for file in files:
        if not file.is_file():
            raise BasculeError(f"{file}: expected this file, which {index.name} names, found nothing", "NOT_FOUND")
    return files


def _specs(files: dict[Path, Any]) -> Iterator[TensorSpec]:
    seen: dict[str, Path] = {}
    for path, file in files.items():
        for name in file.keys():
            if name in seen:
                raise BasculeError(f"{path}: tensor {name} is also in {seen[name].name}; name the one file to send",
                                   "INVALID_ARGUMENT")
            seen[name] = path
            described = file.get_slice(name)
            try:
                dtype = dtype_name(_PAIRS.get(described.get_dtype(), described.get_dtype()))
            except BasculeError as error:
                raise BasculeError(f"{path}: tensor {name}: {error}", error.code) from None
            yield TensorSpec(name, dtype, _shape(described))


def _shape(described: Any) -> list[int]:
    """As torch has it: two of safetensors' 4-bit elements are one of torch's."""
    shape = list(described.get_shape())
    return [*shape[:-1], shape[-1] // 2] if described.get_dtype() == "F4" else shape
