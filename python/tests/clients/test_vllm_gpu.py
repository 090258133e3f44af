"""Real vLLM on a GPU: each version has the trainer's parameters, bit for bit, and generates the model's tokens."""

import time

import pytest
import tiny
import torch

import bascule

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine
BACKEND = {"weight_transfer_config": {"backend": "bascule"}}
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
EAGER = {"enforce_eager": True}
GRAPHS = {"enforce_eager": False, "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY",
                                                         "cudagraph_capture_sizes": [1, 2, 4]}}
COMPILED = {"enforce_eager": False}  # vLLM's default: torch.compile, and graphs of its pieces
SIZES = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 4, "max_position_embeddings": 1024}
NEAR = 0.3  # of the logits' spread: bfloat16's rounding; a random token is about 3 away
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
         "up_proj": "gate_up_proj"}


@pytest.fixture
def trainer(request, tmp_path):
    """A bfloat16 model on the GPU, whose checkpoint is in tmp_path; parametrized by whether its head is tied."""
    torch.set_default_device("cuda:0")
    torch.set_default_dtype(torch.bfloat16)
    try:
        return tiny.save(tmp_path / "model", **SIZES, tie_word_embeddings=getattr(request, "param", True)).eval()
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def start(start_engine, tmp_path):
    """start(environment, **options of LLM) starts a process with an engine of that checkpoint."""
    started = []

    def start(environment, **options):
        started.append(start_engine(environment, model=str(tmp_path / "model"), dtype="bfloat16", max_model_len=1024,
                                    gpu_memory_utilization=0.05, kv_cache_memory_bytes=1 << 28, **options))
        return started[-1].started()

    yield start
    for engine in started:
        engine.kill()


@torch.no_grad()
def train(model, version):
    """Weights that give clearly different tokens in each version."""
    generator = torch.Generator("cuda:0").manual_seed(version)
    for name, each in model.named_parameters():
        noise = torch.randn(each.shape, generator=generator, device="cuda:0")
        if "layernorm" in name:
            each.copy_(1 + 0.1 * noise)
        elif "norm" in name or "embed" in name:
            each.copy_(noise)
        else:
            each.copy_(noise * (0.05 if each.dim() == 1 else each.shape[-1] ** -0.5))


def digests(model):
    """The values that vLLM's parameters must have: vLLM joins tensors that it multiplies together."""
    wholes = {}
    for name, each in model.named_parameters():
        part = next((part for part in FUSED if f".{part}." in name), "")
        wholes.setdefault(name.replace(part, FUSED[part]) if part else name, []).append(each)
    return {name: tiny.digest(torch.cat(parts)) for name, parts in wholes.items()}


@torch.no_grad()
def distances(model, tokens):
    """How far each token's logit is below the best one, relative to the spread of the logits."""
    logits = model(torch.tensor([tiny.PROMPT + tokens], device="cuda:0")).logits[0, len(tiny.PROMPT) - 1:-1].float()
    mine = logits.gather(1, torch.tensor(tokens, device="cuda:0")[:, None])[:, 0]
    return (logits.max(-1).values - mine) / logits.std(-1)


def check(engine, model):
    assert engine.ask("digests") == digests(model)
    tokens = engine.ask("generate", prompt=tiny.PROMPT, tokens=24)
    assert distances(model, tokens).max() < NEAR
    return tokens


@pytest.mark.parametrize("scheme, apply, mode, trainer", [
    pytest.param("cuda-ipc", "load", EAGER, True, id="cuda-ipc load eager tied"),
    pytest.param("cuda-ipc", "scatter", EAGER, False, id="cuda-ipc scatter eager"),
    pytest.param("cuda-ipc", "load", GRAPHS, False, id="cuda-ipc load graphs"),
    pytest.param("cuda-ipc", "scatter", GRAPHS, True, id="cuda-ipc scatter graphs tied"),
    pytest.param("cuda-ipc", "scatter", COMPILED, False, id="cuda-ipc scatter compiled"),
    pytest.param("shm", "load", GRAPHS, True, id="shm load graphs tied"),
    pytest.param("shm", "scatter", GRAPHS, False, id="shm scatter graphs"),
], indirect=["trainer"])
def test_an_engine_follows(start, trainer, tmp_path, scheme, apply, mode):
    endpoint = f"{scheme}://{tmp_path}/endpoint"
    engine = start({"BASCULE_ENDPOINT": endpoint, "BASCULE_APPLY": apply, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"},
                   **BACKEND, **mode)
    assert engine.ask("scatters") is (apply == "scatter")
    with bascule.Sender(endpoint) as sender:
        sender.register_model(trainer)
        sender.wait_for_workers(1, PATIENCE)
        seen, addresses = [], engine.ask("parameters")[1]
        for version in (1, 2, 3):
            train(trainer, version)
            assert sender.send().complete
            tokens = check(engine, trainer)
            assert tokens not in seen
            seen.append(tokens)
        assert engine.ask("parameters")[1] == addresses
        across_a_flip(engine, trainer, sender)


def across_a_flip(engine, model, sender):
    """Each token of a request in flight comes from the version before or after the flip."""
    engine.begin("generate", prompt=tiny.PROMPT, tokens=900)
    time.sleep(0.3)
    train(model, 4)
    torch.cuda.synchronize()
    assert sender.send().complete
    tokens = engine.answer()
    after = distances(model, tokens)
    train(model, 3)
    before = distances(model, tokens)
    flip = int((before >= NEAR).nonzero()[0])
    assert flip > 0 and (after[flip:] < NEAR).all()
    train(model, 5)
    assert sender.send().complete
    check(engine, model)  # a new request uses nothing from the old one


@pytest.mark.parametrize("apply", ["load", "scatter"])
def test_an_engine_that_its_user_drives(start, trainer, tmp_path, apply):
    driven_by(trainer, start(IN_PROCESS, **BACKEND, **GRAPHS), f"cuda-ipc://{tmp_path}/endpoint", apply,
              lambda engine, endpoint: engine.ask("join", endpoint=endpoint, worker="w", apply=apply),
              lambda engine: engine.ask("update"))


@pytest.mark.parametrize("apply", ["load", "scatter"])
def test_the_worker_extension(start, trainer, tmp_path, apply):
    def take(engine):
        engine.ask("rpc", method="bascule_take")
        engine.ask("reset_prefix_cache")

    engine = start(IN_PROCESS, worker_extension_cls="bascule.vllm.WorkerExtension", **EAGER)
    driven_by(trainer, engine, f"cuda-ipc://{tmp_path}/endpoint", apply,
              lambda engine, endpoint: engine.ask("rpc", method="bascule_join", endpoint=endpoint, apply=apply), take)


def driven_by(model, engine, endpoint, apply, join, update):
    join(engine, endpoint)
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        for version in (1, 2):
            train(model, version)
            sender.send_async()
            update(engine)
            assert sender.wait_async(PATIENCE).complete
            check(engine, model)
