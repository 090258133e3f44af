"""The names and ranks under which vLLM's workers join, in each kind of parallelism."""

from types import SimpleNamespace

import pytest

import bascule
from bascule.vllm.place import place_of

CPU, GPU = SimpleNamespace(type="cpu"), SimpleNamespace(type="other")


def config(is_moe=False, quantization=None, world_size=1, **parallel):
    """A config as vLLM's is in a single engine; test_a_real_config_is_as_these_tests_have_it compares them."""
    sizes = {"data_parallel_size": 1, "data_parallel_index": 0, "data_parallel_rank_local": 0,
             "elastic_ep_max_dp_size": 1, "prefill_context_parallel_size": 1, **parallel}
    return of_parallel(SimpleNamespace(world_size=world_size, **sizes), is_moe, quantization)


def of_parallel(parallel, is_moe=False, quantization=None):
    return SimpleNamespace(parallel_config=parallel, instance_id="abc",
                           model_config=SimpleNamespace(is_moe=is_moe, quantization=quantization))


def place(rank=0, device=CPU, **options):
    return place_of(config(**options), rank, device, "shm:///tmp/nothing", "w")


def test_one_engine_is_one_worker():
    assert (place().worker, place().group, place().ranks) == ("w", "", 1)


def test_ranks_have_a_group_and_numbers():
    found = [place(rank, world_size=2) for rank in range(2)]
    found = [(each.worker, each.group, each.rank, each.ranks) for each in found]
    assert found == [("w-0", "w", 0, 2), ("w-1", "w", 1, 2)]


def test_replicas_of_a_dense_model_differ_although_vllm_resets_their_number():
    replicas = [place(data_parallel_index=i, data_parallel_rank_local=i, elastic_ep_max_dp_size=2) for i in range(2)]
    assert [each.worker for each in replicas] == ["w-dp0", "w-dp1"]
    assert place(data_parallel_index=1).worker == "w-dp1"  # a vLLM that does not keep the number
    both = place(1, world_size=2, data_parallel_index=1)
    assert (both.worker, both.group, both.rank) == ("w-dp1-1", "w-dp1", 1)


def test_replicas_that_vllm_counts_differ():
    assert [place(data_parallel_size=2, data_parallel_index=i).worker for i in range(2)] == ["w-dp0", "w-dp1"]


def test_a_real_config_is_as_these_tests_have_it():
    parallel_config = pytest.importorskip("vllm.config").ParallelConfig
    alone = parallel_config()
    ours = config().parallel_config
    assert {name: getattr(alone, name) for name in vars(ours)} == vars(ours)
    assert place_of(of_parallel(alone), 0, CPU, "shm:///tmp/nothing", "w").worker == "w"
    names = []
    for index in range(2):  # what vLLM's run_engine_core() does for each replica of a dense model
        replica = parallel_config(data_parallel_size=2)
        replica.data_parallel_index = replica.data_parallel_rank_local = index
        replica.reconfigure_for_independent_dp_rank()
        names.append(place_of(of_parallel(replica), 0, CPU, "shm:///tmp/nothing", "w").worker)
    assert names == ["w-dp0", "w-dp1"]


@pytest.mark.parametrize("options, text", [
    ({"is_moe": True}, "mixture of experts: on a CPU"),
    ({"quantization": "int8"}, r"quantised \(int8\): on a CPU"),
    ({"is_moe": True, "device": GPU, "data_parallel_size": 2}, "data_parallel_size=2 for a mixture of experts"),
    ({"world_size": 2, "prefill_context_parallel_size": 2}, "prefill_context_parallel_size=2"),
])
def test_an_engine_that_would_compute_wrongly_is_refused_by_name(options, text):
    with pytest.raises(bascule.BasculeError, match=text) as error:
        place(**options)
    assert error.value.code == "UNIMPLEMENTED"


def test_a_mixture_of_experts_on_a_gpu_may_join():
    assert place(is_moe=True, device=GPU).worker == "w"


def test_a_trainer_that_sends_over_nccl_by_itself_is_refused_by_name():
    from bascule.vllm.engine import BasculeWeightTransferEngine

    engine = object.__new__(BasculeWeightTransferEngine)
    fields = {"master_address": "localhost", "master_port": 1, "rank_offset": 1, "world_size": 2, "packed": True}
    with pytest.raises(ValueError, match="AsyncGRPOTrainer and AsyncDistillationTrainer are made, call bascule.trl.install"):
        engine.parse_init_info(fields)  # what TRL's WeightTransferClient sends
    with pytest.raises(ValueError, match="Invalid init_info .* 'endpont'"):
        engine.parse_init_info({"endpont": "shm:///tmp/x"})
    assert engine.parse_init_info({"endpoint": "shm:///tmp/x"}).endpoint == "shm:///tmp/x"
