"""TRL's client with Bascule's weight methods, without a server: a receiver in a thread stands for its worker."""

import concurrent.futures
import contextlib
import importlib
import re
import threading
from pathlib import Path

import pytest
import torch

trl = pytest.importorskip("trl")

import peft
import transformers

import bascule
import bascule.trl

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture
def endpoint(tmp_path):
    return f"shm://{tmp_path}/endpoint"


def made(endpoint, adapters=(), **options):
    class Client(bascule.trl.install(endpoint, **options)):
        base_url, model = "http://none", "base"

        def __init__(self):
            pass

        def get_server_info(self):
            return {"weight_transfer_config": {"backend": "bascule"}, "parallel_config": {}}

        def get_world_size(self):
            return 1

        def _get(self, url):
            assert url == "http://none/v1/models"
            return {"data": [{"id": name} for name in ("base", *adapters)]}

    return Client()


@contextlib.contextmanager
def worker(endpoint, **options):
    """Yields a list of the tensors' names of each version that the worker took. options: of its receiver."""
    taken, stop = [], threading.Event()

    def run():
        with bascule.Receiver(endpoint, worker="a", **options) as receiver:
            while not stop.is_set():
                if receiver.take(timeout=0.05) is not None:
                    taken.append(sorted(receiver.weights()))
                    receiver.finish()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield taken
    finally:
        stop.set()
        thread.join(PATIENCE)


def adapted(**config):
    torch.manual_seed(0)
    base = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2))
    return peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"], **config))


NAMES = [f"base_model.model.model.layers.0.self_attn.q_proj.lora_{kind}.weight" for kind in "AB"]


def refused(code, text, call, *arguments, **options):
    with pytest.raises(bascule.BasculeError, match=text) as error:
        call(*arguments, **options)
    assert error.value.code == code


def test_each_module_that_imported_the_client_gets_it():
    from trl.experimental.online_dpo import online_dpo_trainer
    from trl.generation import vllm_client, vllm_generation

    for endpoint in ("shm:///tmp/first", "shm:///tmp/second"):
        client = bascule.trl.install(endpoint)
        assert client.bascule_endpoint == endpoint
        assert [each.__name__ for each in client.__mro__] == ["BasculeVLLMClient", "_Weights", "VLLMClient", "object"]
        for module in (online_dpo_trainer, vllm_client, vllm_generation):
            assert module.VLLMClient is client


def test_a_communicator_that_was_closed_can_be_made_again(endpoint):
    client, model = made(endpoint), torch.nn.Linear(2, 2)
    with worker(endpoint) as taken:
        for _ in range(2):
            client.init_communicator()
            client.update_model_params(model)
            client.close_communicator()
    assert taken == [["bias", "weight"]] * 2


@pytest.mark.parametrize("info", [{}, {"weight_transfer_config": None, "parallel_config": None},
                                  {"weight_transfer_config": {"backend": "nccl"}, "parallel_config": {}}])
def test_a_server_for_other_backends_is_refused(endpoint, info):
    client = made(endpoint)
    client.get_server_info = lambda: info
    refused("FAILED_PRECONDITION", f"start it with BASCULE_ENDPOINT={endpoint} and --weight", client.init_communicator)


def test_an_update_waits_for_a_worker_that_is_started_again(endpoint):
    client, model = made(endpoint, timeout=PATIENCE), torch.nn.Linear(2, 2)
    client.init_communicator()
    with worker(endpoint):
        client.update_model_params(model)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        update = other.submit(client.update_model_params, model)
        with pytest.raises(concurrent.futures.TimeoutError):
            update.result(0.2)
        with worker(endpoint) as taken:
            update.result(PATIENCE)
    assert taken[-1] == ["bias", "weight"]
    client.close_communicator()


def test_a_single_tensor_is_no_version(endpoint):
    client, model = made(endpoint), torch.nn.Linear(2, 2)
    client.init_communicator()
    with worker(endpoint) as taken:
        refused("FAILED_PRECONDITION", "update_named_param: weight alone is not a whole version",
                client.update_named_param, "weight", model.weight)
        client.update_model_params(model)
        more = torch.nn.ParameterDict({**dict(model.named_parameters()), "other": torch.zeros(1)})
        refused("INVALID_ARGUMENT", "1 tensors, such as other, were not in the first update",
                client.update_model_params, more)
        with client.weight_update():
            for name, tensor in model.named_parameters():
                client.update_named_param(name, tensor)
        with pytest.raises(bascule.BasculeError, match="no tensors"), client.weight_update():
            pass
    client.close_communicator()
    assert taken == [["bias", "weight"]] * 2


@pytest.mark.parametrize("endpoint, options, text", [
    (None, {}, "endpoint: expected a URL"), ("shm:///x", {"workers": "two"}, "workers: expected a whole number"),
    ("shm:///x", {"workers": 0}, "workers: expected 1 or more"),
    ("shm:///x", {"adapter": None}, "adapter: expected a str"), ("shm:///x", {"adapter": ".."}, "adapter: expected a name"),
    ("shm:///x", {"adapter": "a/b"}, "adapter: expected a name"),
    ("shm:///x", {"timeout": "soon"}, "timeout: expected")])
def test_wrong_arguments_are_refused_by_name(endpoint, options, text):
    refused("INVALID_ARGUMENT", text, bascule.trl.install, endpoint, **options)


def test_an_adapter_that_the_server_follows_is_sent_alone_and_requests_name_it(endpoint, caplog):
    client = made(endpoint, adapters=["math"], adapter="math")
    client.init_communicator()
    with caplog.at_level("INFO"), worker(f"{endpoint}/adapters/math") as taken:
        assert client.register_adapted(adapted())
        assert client.model == "base"
        client.send_adapted()
        assert client.model == "math"
        client.send_adapted()
    assert taken == [NAMES] * 2
    assert [line for line in caplog.messages if "sent" in line] == [
        f"the adapter default is sent alone to {endpoint}/adapters/math; requests name it math"]
    client.close_communicator()
    assert client.model == "math"


@pytest.mark.parametrize("adapters, config, level, text", [
    ([], {}, "INFO", "the server has no adapter default; start vLLM with --enable-lora and BASCULE_ADAPTERS=default=shm"),
    (["default"], {"bias": "all"}, "WARNING", "bias")], ids=["the server follows none", "it cannot be sent alone"])
def test_merged_weights_are_sent_otherwise_and_the_trainer_s_stay_as_they_are(endpoint, adapters, config, level, text, caplog):
    client, model = made(endpoint, adapters), adapted(**config)
    client.init_communicator()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with caplog.at_level("INFO"), worker(endpoint) as taken:
        assert client.register_adapted(model)
        client.send_adapted()
    assert taken == [sorted(name.removeprefix("base_model.model.").replace(".base_layer", "")
                            for name in before if "lora_" not in name)]
    assert client.model == "base"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    line = next(record for record in caplog.records if "merged into the base model, not alone" in record.getMessage())
    assert line.levelname == level and text in line.getMessage()
    client.close_communicator()


def test_what_only_peft_can_merge_is_left_to_trl(endpoint, caplog):
    client = made(endpoint, adapters=["default"])
    client.init_communicator()
    assert not client.register_adapted(adapted(use_dora=True))
    assert "TRL merges the adapter" in caplog.text and "use_dora" in caplog.text
    with worker(endpoint) as taken:  # the endpoint is free for TRL's own way
        client.update_model_params(torch.nn.Linear(2, 2))
    assert taken == [["bias", "weight"]]
    client.close_communicator()


@pytest.mark.parametrize("again", [False, True])
def test_each_trainer_that_imports_the_client_by_name_gets_bascules(endpoint, again):
    """Of TRL's own files: those whose client is the one that sends weights."""
    folder = Path(trl.__file__).parent
    by_name = re.compile(r"^from \.+(generation\.)?vllm_client import .*VLLMClient", re.MULTILINE)
    files = [path.relative_to(folder.parent) for path in sorted(folder.rglob("*.py")) if by_name.search(path.read_text())]
    modules = [importlib.import_module(".".join(file.with_suffix("").parts)) for file in files if "async_" not in str(file)]
    assert {"vllm_generation", "online_dpo_trainer"} == {module.__name__.rpartition(".")[2] for module in modules}
    for _ in range(1 + again):
        client = bascule.trl.install(endpoint)
        assert all(module.VLLMClient is client for module in modules)


def test_an_engine_that_follows_another_url_is_named_in_the_error(endpoint):
    client = made(endpoint, adapters=["default"], timeout=0.1)
    client.init_communicator()
    assert client.register_adapted(adapted())
    refused("DEADLINE_EXCEEDED", f"vLLM must have been started with BASCULE_ADAPTERS=default={endpoint}/adapters/default",
            client.send_adapted)
    client.close_communicator()


@pytest.mark.parametrize("endpoint, expected", [
    ("shm:///run/grpo", "shm:///run/grpo/adapters/math"), ("shm:///run/grpo/?slots=3&x=1", "shm:///run/grpo/adapters/math?slots=3&x=1"),
    ("auto://node1:29500", None), ("auto:///run/grpo?listen=node1:29500", None)])
def test_an_adapter_has_an_endpoint_in_the_folder_of_the_run(endpoint, expected):
    if expected:
        assert bascule.trl.adapter_endpoint(endpoint, "math") == expected
    else:
        with pytest.raises(Exception, match="over TCP"):
            bascule.trl.adapter_endpoint(endpoint, "math")


def test_an_engine_that_refuses_the_adapter_ends_the_update_with_its_reason(endpoint):
    def accept(tensors, description):
        raise ValueError("max_lora_rank is 2")

    client = made(endpoint, adapters=["default"])
    client.init_communicator()
    client.register_adapted(adapted())
    with worker(f"{endpoint}/adapters/default", accept=accept):
        refused("UNAVAILABLE", "not served by all workers: .*max_lora_rank is 2", client.send_adapted)
    assert client.model == "base"
    client.close_communicator()
