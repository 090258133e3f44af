"""A worker extension with which rank 1 fails once to load an adapter's second version, and once to activate math@3."""

from bascule.vllm import adapter_rank

make, give = adapter_rank.lora_model, adapter_rank.Adapters._model
made, failed = 0, False


def is_rank_1():
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return get_tensor_model_parallel_rank() == 1


def make_but_once(*arguments):
    global made
    made += 1
    if made == 2 and is_rank_1():
        raise MemoryError("rank 1 is out of memory")
    return make(*arguments)


def give_but_once(adapters, request):
    """Runs within vLLM's add_adapter()."""
    global failed
    if request.lora_name.startswith("math@3") and is_rank_1() and not failed:
        failed = True
        raise MemoryError("rank 1 has no slot")
    return give(adapters, request)


adapter_rank.lora_model, adapter_rank.Adapters._model = make_but_once, give_but_once


class Extension:
    pass
