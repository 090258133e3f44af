"""A worker extension for engines with several ranks, whose linear layers torch computes: what each rank holds."""

import os

import plain_linears  # noqa: F401: vLLM imports this module before it makes the model
import tiny
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

import bascule.vllm.scatter

check_kernels = bascule.vllm.scatter._check_kernels


def fail(*arguments):
    raise MemoryError("this rank is out of memory")


class Extension:
    def sliced_fails(self, rank):
        """Makes the proof of this rank fail, and lets the proofs of the others succeed; None: of no rank."""
        fails = get_tensor_model_parallel_rank() == rank
        bascule.vllm.scatter._check_kernels = fail if fails else check_kernels

    def sliced_scatters(self):
        return self.weight_transfer_engine.rank.scatter is not None

    def sliced_bytes(self):
        """What a version's copy reads, if the sender has the model's types, and how large the parameters are."""
        targets = self.weight_transfer_engine.rank.scatter.targets
        return sum(each.tensor.nbytes for each in targets), sum(each.nbytes for each in self._sliced().values())

    def sliced_digests(self):
        """By parameter."""
        return {name: tiny.digest(each) for name, each in self._sliced().items()}

    def sliced_process(self):
        return os.getpid()

    def _sliced(self):
        return dict(self.model_runner.get_model().named_parameters())
