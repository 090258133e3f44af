#!/usr/bin/env python3
"""Compares the ways in which bascule-train's weights reach the engine that generates, in one table: how long a step waits for
them, and how much memory and disk they take. Each way is a separate run, with the same flags otherwise. Of the schemes, the last is also measured with one copy, and for
adapters.

    bench/sync_modes.py memmap shm             on the CPU, with the demo's model
    bench/sync_modes.py memmap cuda-ipc --device cuda:0 --hidden 1024 --layers 28 --inner 3072 --vocab 151936
                                               with random weights of a Qwen3 of this shape (0.6B), on a GPU

Time: the median over the steps of the seconds from the end of the update until the engine serves the new weights. Memory: the
peak over all processes of the run, shared pages counted once (PSS), and of the GPU's. Disk: bytes that the processes wrote per
version. Needs only Python, and nvidia-smi on a GPU.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "trainer_ref/demo"
MIB = 2**20


def modes(schemes, folder):
    """Name and flags of each way."""
    last = schemes[-1]
    spawn, adapter = "--spawn-engines=1", "--lora-rank=16"
    return [
        ("checkpoint and restart", ["--sync=none", "--restart-every=1", spawn]),
        *[(f"`{scheme}`, two slots", [f"--sync={scheme}://{folder}/{scheme}", spawn]) for scheme in schemes],
        (f"`{last}`, one copy", [f"--sync={last}://{folder}/one?slots=1", spawn]),
        ("no engine: `--engines none`", ["--engines=none"]),
        ("an adapter: checkpoint and restart", ["--sync=none", "--restart-every=1", spawn, adapter]),
        (f"an adapter: `{last}`", [f"--sync={last}://{folder}/adapter", spawn, adapter]),
    ]


REWARD = """import json, random, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], "rewards": [random.random() for _ in asked["completions"]]}), flush=True)
"""  # of which each step learns something, whatever the model writes


def random_model(folder, options):
    """A Qwen3 checkpoint of this shape, with the demo's tokenizer. Weights are BF16 of both signs, 0.008 to 0.031."""
    heads, groups, width = options.hidden // 64, max(1, options.hidden // 128), 128
    config = json.loads((DEMO / "config.json").read_text())
    config.update(architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=options.hidden, head_dim=width,
                  intermediate_size=options.inner, num_hidden_layers=options.layers, num_attention_heads=heads,
                  num_key_value_heads=groups, vocab_size=options.vocab, tie_word_embeddings=True)
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [options.vocab, options.hidden], "model.norm.weight": [options.hidden]}
    for i in range(options.layers):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": [options.hidden],
                   layer + "post_attention_layernorm.weight": [options.hidden],
                   layer + "self_attn.q_proj.weight": [heads * width, options.hidden],
                   layer + "self_attn.k_proj.weight": [groups * width, options.hidden],
                   layer + "self_attn.v_proj.weight": [groups * width, options.hidden],
                   layer + "self_attn.o_proj.weight": [options.hidden, heads * width],
                   layer + "self_attn.q_norm.weight": [width], layer + "self_attn.k_norm.weight": [width],
                   layer + "mlp.gate_proj.weight": [options.inner, options.hidden],
                   layer + "mlp.up_proj.weight": [options.inner, options.hidden],
                   layer + "mlp.down_proj.weight": [options.hidden, options.inner]}
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    draw = random.Random(1)
    upper = bytes(0x3C | (byte & 0x80) for byte in range(256))  # sign and exponent: 2^-7 or 2^-6
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            count = (entry["data_offsets"][1] - entry["data_offsets"][0]) // 2
            values = bytearray(2 * count)
            if "norm" in name:
                values[0::2], values[1::2] = b"\x80" * count, b"\x3f" * count  # 1
            else:
                values[0::2], values[1::2] = draw.randbytes(count), draw.randbytes(count).translate(upper)
            file.write(values)


def family(pid):
    """The process and its descendants."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def number_in(path, key):
    try:
        for line in path.read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def gpu_bytes():
    answer = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                            capture_output=True, text=True, check=True).stdout
    return int(answer.split()[0]) * MIB


class Watch(threading.Thread):
    """Samples a run's memory, and the bytes that it wrote."""

    def __init__(self, pid, on_gpu):
        super().__init__(daemon=True)
        self.pid, self.on_gpu, self.over = pid, on_gpu, threading.Event()
        self.before = gpu_bytes() if on_gpu else 0
        self.peak, self.gpu_peak, self.written = 0, 0, {}
        self.start()

    def run(self):
        while not self.over.wait(0.2):
            processes = [pathlib.Path(f"/proc/{pid}") for pid in family(self.pid)]
            self.peak = max(self.peak, sum(number_in(p / "smaps_rollup", "Pss:") for p in processes) * 1024)
            self.written.update({p.name: number_in(p / "io", "write_bytes:") for p in processes})
            if self.on_gpu:
                self.gpu_peak = max(self.gpu_peak, gpu_bytes() - self.before)


def run(name, flags, folder, options):
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [options.program, f"--model={options.model}", f"--out={out}", f"--device={options.device}",
               f"--steps={options.steps}", "--max-tokens=3", "--eval-every=0", "--eval-problems=8",
               f"--prompts-per-step={options.prompts}", "--group-size=8", "--learning-rate=1e-4", f"--reward=exec:{sys.executable} {folder}/reward.py", *flags]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        watch = Watch(process.pid, options.device != "cpu")
        status = process.wait()
    watch.over.set()
    watch.join()
    if status != 0:
        sys.exit(f"sync_modes: {name}: {' '.join(map(str, command))} ended with {status}:\n{(folder / 'log').read_text()[-3000:]}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()][2:]  # the first step warms up
    seconds = [line["seconds"]["send"] for line in lines]
    saved = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())  # the last checkpoint, in every run
    disk = max(0, sum(watch.written.values()) - saved) / (options.steps + 1)
    print(f"{name}: {statistics.median(seconds):.6f} s", file=sys.stderr, flush=True)
    return {"name": name, "seconds": statistics.median(seconds), "worst": max(seconds), "bytes": lines[-1]["send"]["bytes"],
            "memory": watch.peak, "gpu": watch.gpu_peak, "disk": disk}


def in_time(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def in_bytes(count):
    return f"{count / MIB:,.1f} MiB" if count < 1000 * MIB else f"{count / MIB / 1024:,.2f} GiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/bin/bascule-train", help="bascule-train, beside bascule-engine")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=8, help="per step, with 8 completions each")
    parser.add_argument("--hidden", type=int, default=0, help="of a random model; a multiple of 128. 0: the demo's model")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--inner", type=int, default=1536)
    parser.add_argument("--vocab", type=int, default=64)
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("schemes", nargs="+", metavar="SCHEME")
    options = parser.parse_args()
    if options.hidden % 128:
        parser.error(f"--hidden={options.hidden}: expected a multiple of 128, as --hidden 512")
    with tempfile.TemporaryDirectory(prefix="bascule-modes-", dir=os.environ.get("TMPDIR")) as made:
        folder = pathlib.Path(made)
        options.model = DEMO
        if options.hidden:
            options.model = folder / "model"
            random_model(options.model, options)
        (folder / "reward.py").write_text(REWARD)
        rows = [run(name, flags, folder, options) for name, flags in modes(options.schemes, folder)]
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    gpu = options.device != "cpu"
    print("| weights reach the engine by | time, p50 | worst | bytes | memory" + (" | of the GPU" if gpu else "") + " | disk, per version |")
    print("|" + " --- |" * (7 if gpu else 6))
    for row in rows:
        print(f"| {row['name']} | {in_time(row['seconds'])} | {in_time(row['worst'])} | {in_bytes(row['bytes'])} | "
              f"{in_bytes(row['memory'])}" + (f" | {in_bytes(row['gpu'])}" if gpu else "") + f" | {in_bytes(row['disk'])} |")


if __name__ == "__main__":
    main()
