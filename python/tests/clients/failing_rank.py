"""A worker extension with which rank 1 fails once to load its second version."""

import bascule.vllm.rank

load, calls = bascule.vllm.rank.load, 0


def load_but_once(*arguments):
    global calls
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    calls += 1
    if calls == 2 and get_tensor_model_parallel_rank() == 1:
        raise MemoryError("rank 1 is out of memory")
    load(*arguments)


bascule.vllm.rank.load = load_but_once


class Extension:
    pass
