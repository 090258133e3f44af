"""TRL's client with Bascule's weight methods, without a server: a receiver in a thread stands for its worker."""

import contextlib
import threading

import pytest
import torch

pytest.importorskip("trl")

import bascule
import bascule.trl

PATIENCE = 60  # seconds, longer than anything healthy takes


@pytest.fixture
def endpoint(tmp_path):
    return f"shm://{tmp_path}/endpoint"


def made(endpoint, **options):
    class Client(bascule.trl.install(endpoint, **options)):
        base_url = "http://none"

        def __init__(self):
            pass

        def get_server_info(self):
            return {"weight_transfer_config": {"backend": "bascule"}, "parallel_config": {}}

        def get_world_size(self):
            return 1

    return Client()


@contextlib.contextmanager
def worker(endpoint):
    """Yields a list of the tensors' names of each version that the worker took."""
    taken, stop = [], threading.Event()

    def run():
        with bascule.Receiver(endpoint, worker="a") as receiver:
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
    ("shm:///x", {"timeout": "soon"}, "timeout: expected")])
def test_wrong_arguments_are_refused_by_name(endpoint, options, text):
    refused("INVALID_ARGUMENT", text, bascule.trl.install, endpoint, **options)
