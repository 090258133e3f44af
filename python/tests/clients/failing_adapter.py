"""A worker extension with which rank 1 fails once to load an adapter's second version."""

import bascule.vllm.adapter_rank

make, calls = bascule.vllm.adapter_rank.lora_model, 0


def make_but_once(*arguments):
    global calls
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    calls += 1
    if calls == 2 and get_tensor_model_parallel_rank() == 1:
        raise MemoryError("rank 1 is out of memory")
    return make(*arguments)


bascule.vllm.adapter_rank.lora_model = make_but_once


class Extension:
    pass
