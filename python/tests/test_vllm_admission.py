"""With which version of an adapter a request is admitted. This part needs no vLLM."""

from types import SimpleNamespace

from bascule.vllm.adapter_versions import Adapter, admit_with_newest, held


class Request(SimpleNamespace):
    def __init__(self, request_id, adapter="math"):
        super().__init__(request_id=request_id, lora_request=SimpleNamespace(lora_name=adapter, lora_path=f"bascule:{adapter}"),
                         block_hashes=["of the name alone"])

    def update_block_hashes(self):
        self.block_hashes.append(self.lora_request.lora_name)

    def is_finished(self):
        return False


def version(number):
    return SimpleNamespace(lora_name=f"math@{number}", lora_int_id=number, lora_path=f"bascule:shm:///math#{number}")


def admitting(adapter):
    """Returns what admits a request, and the requests that the scheduler got."""
    requests = {}
    core = SimpleNamespace(scheduler=SimpleNamespace(
        requests=requests, add_request=lambda request: requests.__setitem__(request.request_id, request)))
    admit_with_newest(core, {"math": adapter})
    return core.scheduler


def test_a_request_gets_the_newest_version_and_keys_of_its_name():
    adapter = Adapter("shm:///math", versions=[version(1), version(2)])
    scheduler, request = admitting(adapter), Request("a")
    scheduler.add_request(request)
    assert request.lora_request is adapter.versions[1] and request.block_hashes == ["math@2"]
    assert held(scheduler, adapter.versions) == [request]
    assert held(scheduler, [version(1)]) == held(scheduler, []) == []


def test_all_answers_to_one_request_have_one_version():
    adapter = Adapter("shm:///math", versions=[version(1)])
    scheduler = admitting(adapter)
    first, other, second, late = Request("0_group"), Request("0_other"), Request("1_group"), Request("2_group")
    scheduler.add_request(first)
    adapter.versions.append(version(2))
    scheduler.add_request(second)
    scheduler.add_request(other)
    del adapter.versions[0]
    scheduler.add_request(late)  # its version is no longer here
    assert [each.lora_request.lora_name for each in (first, second, other, late)] == ["math@1", "math@1", "math@2", "math@2"]


def test_other_requests_are_as_vllm_made_them():
    scheduler = admitting(Adapter("shm:///math"))
    own, plain = Request("a"), Request("b")
    own.lora_request.lora_path, plain.lora_request = "/folder/of/an/adapter", None
    for request in (own, plain):
        scheduler.add_request(request)
        assert scheduler.requests[request.request_id].block_hashes == ["of the name alone"]
