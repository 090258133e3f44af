"""What can be tried of a vLLM that has no build for CPUs: imports, registries, signatures, and a send from its own source.

Run with that vLLM's Python files first on the path. Arguments: the checkpoint, an endpoint.
"""

import functools
import inspect
import sys

import tiny
import torch
import vllm
from receiving import Engine
from transformers import Qwen2ForCausalLM
from vllm.distributed.weight_transfer import base, factory

import bascule
import bascule.vllm

checkpoint, endpoint = sys.argv[1:]
assert vllm.__version__.startswith("0.33."), vllm.__version__
bascule.vllm.register()
bascule.vllm.register()  # vLLM may call it again
engine = factory.WeightTransferEngineFactory._registry["bascule"]()
trainer = factory.WeightTransferTrainerFactory._registry["bascule"]()
from bascule.vllm.trainer import BasculeTrainerInitInfo  # noqa: E402

for ours, vllms in ((engine, base.WeightTransferEngine), (trainer, base.TrainerWeightTransferEngine)):
    assert issubclass(ours, vllms) and not ours.__abstractmethods__, ours.__abstractmethods__
    for name in vllms.__abstractmethods__ | {"shutdown"}:
        expected, found = (list(inspect.signature(getattr(each, name)).parameters) for each in (vllms, ours))
        assert expected == found, (name, expected, found)
assert set(inspect.signature(engine.__init__).parameters) == set(inspect.signature(base.WeightTransferEngine.__init__).parameters)


model, client = Qwen2ForCausalLM.from_pretrained(checkpoint), Engine()
sends = factory.WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint=endpoint, rank=0), client=client,
                                                          source=base.ModuleSource(model))
for version in (1, 2, 3):
    tiny.train(model, version)
    sends.send_weights()
    assert client.finished == version
    assert client.taken == {name: tiny.digest(each) for name, each in model.named_parameters()}
client.receiver.close()
sends.shutdown()


class OnlyPieces(base.WeightSource):
    metadata = functools.cached_property(lambda self: [base.ParamMeta("w", torch.float32, (2,))])

    def iter_local(self):
        yield "w", torch.zeros(2)


try:
    factory.WeightTransferTrainerFactory.trainer_init(BasculeTrainerInitInfo(endpoint=endpoint, rank=0), client=client,
                                                      source=OnlyPieces())
    raise AssertionError("a source without whole tensors was taken")
except bascule.BasculeError as error:
    assert "OnlyPieces does not implement iter_full()" in str(error), error
