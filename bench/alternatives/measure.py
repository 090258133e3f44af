#!/usr/bin/env python3
"""Measures how other libraries move a model's weights from a trainer to its engines, with the bytes of bascule-bench.

    python3 -m venv out/alternatives && out/alternatives/bin/pip install -r bench/alternatives/requirements.txt     (4.9 GB)
    out/alternatives/bin/python bench/alternatives/measure.py --bytes 1GiB --tensors 338 --workers 2 --repeat 20 --json alternatives.json
    build/release/bin/bascule-bench --compare ours.json alternatives.json

Three alternatives, alternating with a flat copy (torch, all threads) of the same bytes:

    torchrl       TorchRL's VLLMDoubleBufferSyncScheme: its sender's update_weights() writes a memory-mapped TensorDict
                  into a folder, its receiving transport maps it
    torch.save    torch.save(state_dict) and torch.load
    safetensors   safetensors.torch.save_file and load_file

Each worker is a process. A turn lasts from the trainer's call until every worker has copied the loaded weights into its own
tensors, as an engine's load_weights does. After each turn every worker checks every byte. Nothing is synced to a disk.
The file that --json writes has the format of bascule-bench's JSON (docs/measurements/README.md).
"""
import argparse
import json
import logging
import math
import multiprocessing
import os
import pathlib
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time

import torch

# A layer of a 1.5-billion-parameter decoder, in elements; bench/model.cpp has the same shares.
LAYER = [1536, 1536 * 1536, 1536, 256 * 1536, 256, 256 * 1536, 256, 1536 * 1536, 1536, *[8960 * 1536] * 3]
EMBEDDING_SHARE = 0.15
SEED = 1


def sizes_of(elements, tensors):
    shares = [EMBEDDING_SHARE] + [LAYER[i % 12] / 46.8e6 * 12 / tensors for i in range(tensors - 1)]
    sizes = [1 + int((elements - tensors) * share / sum(shares)) for share in shares]
    sizes[0] += elements - sum(sizes)
    return {f"tensor_{i}": size for i, size in enumerate(sizes)}


def content(index, size, generation):
    """The bits of a bf16 tensor, computed from its index, size and generation."""
    start = (SEED * 1_000_003 + generation * 7919 + index * 104_729) % 2**31
    return ((torch.arange(size, dtype=torch.int32) * -1640531535 + start) >> 16).to(torch.int16) | 1


class Model(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        for name, size in sizes.items():
            parameter = torch.nn.Parameter(torch.zeros(size, dtype=torch.bfloat16), requires_grad=False)
            self.register_parameter(name, parameter)

    def step(self, generation):
        for index, parameter in enumerate(self.parameters()):
            parameter.data.view(torch.int16).copy_(content(index, parameter.numel(), generation))

    def load(self, weights):
        for name, parameter in self.named_parameters():
            parameter.data.copy_(weights[name])

    def check(self, generation):
        for index, (name, parameter) in enumerate(self.named_parameters()):
            if not torch.equal(parameter.data.view(torch.int16), content(index, parameter.numel(), generation)):
                return f"{name} is not of generation {generation}"
        return ""


class TorchRL:
    name = "torchrl"

    def __init__(self, folder, threads, model=None):
        from torchrl.weight_update.llm import vllm_double_buffer
        vllm_double_buffer.logger.setLevel(logging.WARNING)
        scheme = vllm_double_buffer.VLLMDoubleBufferSyncScheme(remote_addr=str(folder / "torchrl"), num_threads=threads)
        if model is None:
            self.transport = scheme.create_transport()
        else:
            self.sender = scheme.create_sender()
            self.sender.register_model(model)

    def send(self, model):
        self.sender.update_weights()

    def receive(self):
        return self.transport.receive_weights()


class TorchSave:
    name = "torch.save"

    def __init__(self, folder, threads, model=None):
        self.file = folder / "weights.pt"

    def send(self, model):
        torch.save(model.state_dict(), self.file)

    def receive(self):
        return torch.load(self.file, weights_only=True)


class SafeTensors:
    name = "safetensors"

    def __init__(self, folder, threads, model=None):
        self.file = folder / "weights.safetensors"

    def send(self, model):
        import safetensors.torch
        safetensors.torch.save_file(model.state_dict(), self.file)

    def receive(self):
        import safetensors.torch
        return safetensors.torch.load_file(self.file)


ALTERNATIVES = [TorchRL, TorchSave, SafeTensors]


def work(connection, folder, sizes, threads):
    """A worker: loads each version that the trainer names, and checks it."""
    torch.set_num_threads(threads)
    model = Model(sizes)
    alternatives = {}
    while True:
        try:
            verb, argument = connection.recv()
        except EOFError:
            return
        if verb == "load":
            if argument not in alternatives:
                alternatives[argument] = next(each for each in ALTERNATIVES if each.name == argument)(folder, threads)
            start = time.perf_counter()
            model.load(alternatives[argument].receive())
            connection.send(time.perf_counter() - start)
        else:
            connection.send(model.check(argument))


def machine(folder):
    """The facts by which bascule-bench tells machines apart (bench/machine.cpp)."""

    def line(path):
        try:
            return pathlib.Path(path).read_text().splitlines()[0]
        except (OSError, IndexError):
            return "unknown"

    def value(path, key):
        found = re.search(rf"^{key}\s*:\s*(.*?)\s*$", pathlib.Path(path).read_text(), re.MULTILINE)
        return found.group(1) if found else "unknown"

    chosen = re.search(r"\[(.*)\]", line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))
    return {
        "cpu": value("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory_bytes": str(int(value("/proc/meminfo", "MemTotal").split()[0]) * 1024),
        "kernel": platform.release(),
        "shmem_enabled": chosen.group(1) if chosen else "unknown",
        "governor": line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "filesystem": os.popen(f"stat -f -c %T '{folder}'").read().strip().replace("ext2/ext3", "ext4"),
    }


def quantile(values, q):
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def summary(values):
    return {"p50": quantile(values, 0.5), "p90": quantile(values, 0.9), "p99": quantile(values, 0.99),
            "min": min(values)}


def record(name, arguments, ours, baseline, stages):
    return {
        "scheme": name, "scenario": "send", "bytes": arguments.bytes, "tensors": arguments.tensors,
        "workers": arguments.workers, "device": "cpu", "ours_seconds": summary(ours),
        "baseline": {"name": "flat copy by torch", "seconds": statistics.median(baseline), **summary(baseline)},
        "ratio": statistics.median(ours) / statistics.median(baseline),
        "stages": {stage: summary(values) for stage, values in stages.items()},
        "samples": {"ours_seconds": ours, "baseline_seconds": baseline, "stages": stages},
    }


def byte_size(text):
    found = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB|KB|MB|GB)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"expected a size, as 1GiB, found {text!r}")
    unit = found.group(2) or "B"
    return int(found.group(1)) * (1024 if "i" in unit else 1000) ** " KMG".index(unit[0] if unit != "B" else " ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=byte_size, default=byte_size("1GiB"), help="size of the model, in bf16")
    parser.add_argument("--tensors", type=int, default=338)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20, help="counted turns of each alternative")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of the trainer")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    sizes = sizes_of(arguments.bytes // 2, arguments.tensors)
    torch.set_num_threads(arguments.threads)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bascule-alternatives-", dir=arguments.folder))
    context = multiprocessing.get_context("spawn")
    try:
        workers = []
        for _ in range(arguments.workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, daemon=True,
                                      args=(theirs, folder, sizes, max(1, arguments.threads // arguments.workers)))
            process.start()
            theirs.close()
            workers.append(ours)

        def ask(verb, argument):
            for worker in workers:
                worker.send((verb, argument))
            return [worker.recv() for worker in workers]

        model = Model(sizes)
        alternatives = [alternative(folder, arguments.threads, model) for alternative in ALTERNATIVES]
        flat = torch.ones(arguments.bytes // 2, dtype=torch.bfloat16)
        flat_copy = torch.empty_like(flat).share_memory_().zero_()
        samples = {alternative.name: {"total": [], "write": [], "load": []} for alternative in alternatives}
        baseline = []
        generation = 0
        for turn in range(-1, arguments.repeat):
            for alternative in alternatives:
                generation += 1
                model.step(generation)
                start = time.perf_counter()
                alternative.send(model)
                written = time.perf_counter()
                ask("load", alternative.name)
                done = time.perf_counter()
                for problem in ask("check", generation):
                    if problem:
                        sys.exit(f"{alternative.name}: {problem}")
                if turn >= 0:
                    samples[alternative.name]["total"].append(done - start)
                    samples[alternative.name]["write"].append(written - start)
                    samples[alternative.name]["load"].append(done - written)
            start = time.perf_counter()
            flat_copy.copy_(flat)
            if turn >= 0:
                baseline.append(time.perf_counter() - start)
            print(f"\rturn {turn + 1}/{arguments.repeat}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)

        records = [record(name, arguments, taken["total"], baseline, {"write": taken["write"], "load": taken["load"]})
                   for name, taken in samples.items()]
        for row in records:
            print(f"{row['scheme']:12} p50 {row['ours_seconds']['p50']:.3f} s (write {row['stages']['write']['p50']:.3f}, "
                  f"load {row['stages']['load']['p50']:.3f}), {row['ratio']:.1f} times the flat copy")
        if arguments.json:
            results = {"machine": machine(arguments.folder), "seed": SEED, "command": " ".join(sys.argv),
                       "records": records}
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
