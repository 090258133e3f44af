"""Measures how long a send of a LoRA adapter takes, beside a copy of the same bytes and PEFT's files, alternating all three.

    python bench/adapters.py [cuda]     needs bascule, peft and transformers, as scripts/test-python --torch installs them

The adapter is for all linear modules of a model of Qwen3-0.6B's shape, with r = 16: 10 million weights in float32. The base
model has no memory. An engine process follows over shm, or on a GPU over cuda-ipc, and commits without a pause. The files
are written by save_pretrained() and read by safetensors, in memory (/dev/shm).
"""

import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings

ROUNDS = 31


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
        base = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
            vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128))
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
            times = {what: [] for what in calls}
            for each in range(3 + ROUNDS):
                for what, call in calls.items():
                    begun = time.perf_counter()
                    call()
                    if each >= 3:
                        times[what].append(time.perf_counter() - begun)
            stop.set()
            process.join()
    print(f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values()) / 1e6:.1f} million weights, on {device}")
    for what, each in times.items():
        print(f"{what}: {1e3 * statistics.median(each):.2f} ms")


if __name__ == "__main__":
    main()
