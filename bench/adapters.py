"""Measures how long a send of a LoRA adapter takes, beside a copy of the same bytes and PEFT's files, alternating all three.

    python bench/adapters.py [cuda]     needs bascule, peft and transformers, as scripts/test-python --torch installs them
    python bench/adapters.py vllm       needs vLLM, as scripts/test-python --clients installs it; no other row

The adapter is for all linear modules of a model of Qwen3-0.6B's shape, with r = 16: 10 million weights in float32. The base
model has no memory. An engine process follows over shm, or on a GPU over cuda-ipc, and commits without a pause. The files
are written by save_pretrained() and read by safetensors, in memory (/dev/shm).

With vLLM, a server of this model in bfloat16, whose weights are random, follows the adapter. send() returns once the server
answers with the new version. It alternates with save_pretrained() and vLLM's own /v1/load_lora_adapter of that folder.
"""

import json
import multiprocessing
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings

ROUNDS = 31
PATIENCE = 600  # seconds, for a server to start
SHAPE = {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}


def engine(endpoint, device, stop):
    import bascule

    with bascule.Receiver(endpoint, worker="engine", device=device) as receiver:
        while not stop.is_set():
            receiver.commit()


def adapted_model(device):
    import peft
    import torch
    import transformers

    with torch.device("meta"):
        base = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE))
        model = peft.get_peft_model(base, peft.LoraConfig(r=16, target_modules="all-linear", use_rslora=True))
    for name, parameter in list(model.named_parameters()):
        if "lora_" in name:
            owner, _, key = name.rpartition(".")
            setattr(model.get_submodule(owner), key, torch.nn.Parameter(torch.randn(parameter.shape, device=device)))
    return model


def main():
    warnings.simplefilter("ignore")
    import peft
    import safetensors.torch
    import torch

    import bascule

    device = "cuda" if "cuda" in sys.argv[1:] else "cpu"
    settle = torch.cuda.synchronize if device == "cuda" else lambda: None
    model = adapted_model(device)
    tensors = {name: tensor.detach() for name, tensor in peft.get_peft_model_state_dict(model).items()}
    copies = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as files:
        endpoint = f"{'shm' if device == 'cpu' else 'cuda-ipc'}://{folder}/endpoint"
        stop = spawn.Event()
        process = spawn.Process(target=engine, args=(endpoint, device, stop), daemon=True)
        process.start()

        def copy():
            for name, tensor in tensors.items():
                copies[name].copy_(tensor)
            settle()

        def save_and_load():
            model.save_pretrained(files, save_embedding_layers=False)
            for name, tensor in safetensors.torch.load_file(f"{files}/adapter_model.safetensors").items():
                copies[name].copy_(tensor)
            settle()

        with bascule.Sender(endpoint) as sender:
            sender.register_adapter(model)
            sender.wait_for_workers(1)
            calls = {"send()": sender.send, "a copy of the same bytes": copy,
                     "save_pretrained() and load": save_and_load}
            times = in_turns(calls)
            stop.set()
            process.join()
    show(tensors, device, times)


def in_turns(calls, rounds=ROUNDS):
    """The seconds of each call in each round."""
    times = {what: [] for what in calls}
    for each in range(3 + rounds):
        for what, call in calls.items():
            begun = time.perf_counter()
            call()
            if each >= 3:
                times[what].append(time.perf_counter() - begun)
    return times


def show(tensors, where, times):
    print(f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values()) / 1e6:.1f} million weights, on {where}")
    for what, each in times.items():
        print(f"{what}: {1e3 * statistics.median(each):.2f} ms")


class Server:
    """A `vllm serve` of a model of SHAPE, on a CPU."""

    def __init__(self, folder, endpoint):
        import tokenizers
        import transformers

        transformers.Qwen3Config(**SHAPE, architectures=["Qwen3ForCausalLM"], dtype="bfloat16").save_pretrained(folder)
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<unk>").save_pretrained(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [os.path.join(os.path.dirname(sys.executable), "vllm"), "serve", folder, "--host", "127.0.0.1", "--port", str(port),
             "--load-format", "dummy", "--enforce-eager", "--max-model-len", "64", "--max-num-seqs", "4",
             "--kv-cache-memory-bytes", str(1 << 28), "--enable-lora", "--max-lora-rank", "16", "--max-loras", "4"],
            start_new_session=True, stdout=subprocess.DEVNULL,
            env={**os.environ, "BASCULE_ADAPTERS": f"followed={endpoint}", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
                 "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"})

    def wait_until_up(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return urllib.request.urlopen(f"{self.url}/health")
            except urllib.error.URLError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def post(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def vllm():
    """Alternates send() and vLLM's own load; after each of them the server has the adapter."""
    warnings.simplefilter("ignore")
    import peft

    import bascule

    model = adapted_model("cpu")
    tensors = peft.get_peft_model_state_dict(model)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as files:
        endpoint = f"shm://{folder}/endpoint"
        server, names = Server(f"{folder}/model", endpoint), iter(range(10**6))
        try:
            server.wait_until_up()

            def save_and_load():
                name = f"loaded-{next(names)}"  # vLLM's cached results are found by the name
                model.save_pretrained(files, save_embedding_layers=False)
                server.post("/v1/load_lora_adapter", lora_name=name, lora_path=files)

            with bascule.Sender(endpoint) as sender:
                sender.register_adapter(model)
                sender.wait_for_workers(1, PATIENCE)

                def send():
                    if not (report := sender.send()).complete:
                        raise RuntimeError(str(report))

                times = in_turns({"send() until vLLM serves it": send,
                                  "save_pretrained() and vLLM's own load": save_and_load})
        finally:
            server.end()
    show(tensors, "vLLM on a CPU", times)
    ours, theirs = map(statistics.median, times.values())
    print(f"{theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    vllm() if "vllm" in sys.argv[1:] else main()
