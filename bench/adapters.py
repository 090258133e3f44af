"""Measures how long a send of a LoRA adapter takes, beside a copy of the same bytes and PEFT's files, alternating all three.

    python bench/adapters.py [cuda]     needs bascule, peft and transformers, as scripts/test-python --torch installs them
    python bench/adapters.py many       an engine that serves 64 adapters on a CPU, of which one changes or none, in turns

The adapter is for all linear modules of a model of Qwen3-0.6B's shape, with r = 16: 10 million weights in float32. The base
model has no memory. An engine process follows over shm, or on a GPU over cuda-ipc, and commits without a pause. The files
are written by save_pretrained() and read by safetensors, in memory (/dev/shm). PyTorch has one thread: on two cores, its
second one would compete with the engine.

With `many`, 63 more adapters are for the first layer alone. At each step, the engine commits for all 64, and computes the 63
with one thread. In every second turn, the 64th is sent once per second, packed by one thread.
"""

import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings

ROUNDS = 31
TURNS, TURN_SECONDS, ADAPTERS = 20, 4, 64


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

    torch.set_num_threads(1)
    if "many" in sys.argv[1:]:
        return many()
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
    print(f"{len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values()) / 1e6:.1f} million weights, on {device}")
    show(times)


def in_turns(calls):
    """The seconds that each of the calls took, by its name, in ROUNDS alternating rounds after three unmeasured ones."""
    times = {what: [] for what in calls}
    for each in range(3 + ROUNDS):
        for what, call in calls.items():
            begun = time.perf_counter()
            call()
            if each >= 3:
                times[what].append(time.perf_counter() - begun)
    return times


def show(times):
    for what, each in times.items():
        print(f"{what}: {1e3 * statistics.median(each):.2f} ms, lowest {1e3 * min(each):.2f} ms")


def engine_of_many(folder, stop, report):
    import torch

    import bascule

    torch.set_num_threads(1)
    x = torch.randn(16, 3072)
    receivers = [bascule.Receiver(f"shm://{folder}/{i}", worker="engine") for i in range(ADAPTERS)]
    steps = []  # when each began, and how long it took
    while not stop.is_set():
        begun = time.perf_counter()
        for receiver in receivers:
            receiver.commit()
        for receiver in receivers[1:]:
            weights = receiver.weights()
            for name, a in weights.items():
                if "lora_A" in name:
                    x[:, :a.shape[1]] @ a.t() @ weights[name.replace("lora_A", "lora_B")].t()
        steps.append((begun, time.perf_counter() - begun))
    report.send(steps)
    for receiver in receivers:
        receiver.close()


def many():
    import peft

    import bascule

    model = adapted_model("cpu")
    first_layer = {name: tensor.detach() for name, tensor in peft.get_peft_model_state_dict(model).items()
                   if ".layers.0." in name}
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_senders:
        stop, (receive, report) = spawn.Event(), spawn.Pipe(duplex=False)
        process = spawn.Process(target=engine_of_many, args=(folder, stop, report), daemon=True)
        process.start()
        senders = [open_senders.enter_context(bascule.Sender(f"shm://{folder}/{i}", threads=1)) for i in range(ADAPTERS)]
        for sender in senders:
            if sender is senders[0]:
                sender.register_adapter(model)
            else:
                sender.register_model(first_layer, rename=None)
            sender.wait_for_workers(1)
            sender.send()
        time.sleep(TURN_SECONDS)
        begun = time.perf_counter()
        for second in range(TURNS * TURN_SECONDS):
            if second // TURN_SECONDS % 2 == 1:
                senders[0].send()
            time.sleep(max(0, begun + second + 1 - time.perf_counter()))
        stop.set()
        steps = receive.recv()
        process.join()
    times = [[], []]  # without changes, and with them
    for at, took in steps:
        if 0 <= at - begun < TURNS * TURN_SECONDS:
            times[int((at - begun) // TURN_SECONDS) % 2].append(took)
    for what, each in zip(("no adapter changes", "one changes each second"), times):
        print(f"{what}: {len(each)} steps, p50 {1e3 * statistics.median(each):.2f} ms, p99 {1e3 * percentile_99(each):.2f} ms")
    for what, of in (("p50", statistics.median), ("p99", percentile_99)):
        print(f"cost in {what}: {100 * (of(times[1]) / of(times[0]) - 1):+.1f} %")


def percentile_99(values):
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    main()
