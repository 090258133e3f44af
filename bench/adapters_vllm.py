"""Measures how long a LoRA adapter takes from the trainer until vLLM serves it, beside vLLM's own load of the same adapter.

    python bench/adapters_vllm.py       needs vLLM, as scripts/test-python --clients installs it

A `vllm serve` on the CPU has a model of Qwen3-0.6B's shape in bfloat16, whose weights are random, and follows the adapter of
bench/adapters.py. send() returns once the server answers with the new version. It alternates with save_pretrained() into
memory (/dev/shm) and vLLM's own /v1/load_lora_adapter of that folder, which returns once the adapter can be used.
"""

import json
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

from adapters import adapted_model, in_turns, show

PATIENCE = 600  # seconds, for a server to start


class Server:
    """A `vllm serve` of a model with this config, which follows the adapter at `endpoint`."""

    def __init__(self, config, folder, endpoint):
        import tokenizers
        import transformers

        config.architectures, config.dtype = ["Qwen3ForCausalLM"], "bfloat16"
        config.save_pretrained(folder)
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


def main():
    warnings.simplefilter("ignore")
    import bascule

    model = adapted_model("cpu")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as files:
        endpoint = f"shm://{folder}/endpoint"
        server, names = Server(model.get_base_model().config, f"{folder}/model", endpoint), iter(range(10**6))
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

                calls = {"send() until vLLM serves it": send, "save_pretrained() and vLLM's own load": save_and_load}
                times = in_turns(calls)
        finally:
            server.end()
    show(times)
    ours, theirs = map(statistics.median, times.values())
    print(f"{theirs / ours:.1f} times as fast")


if __name__ == "__main__":
    main()
