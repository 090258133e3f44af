"""An unmodified GRPOTrainer of two steps. Arguments: the endpoint, the checkpoint's folder, the server's URL.

It prints the greedy tokens that transformers and the server generate with its last weights.
"""

import json
import sys
import tempfile

import tiny
from grpo import trainer_of

import bascule.trl


def main(endpoint, folder, url):
    bascule.trl.install(endpoint)
    with tempfile.TemporaryDirectory() as output:
        trainer = trainer_of(folder, url, output)
        trainer.train()
        trainer.vllm_generation.sync_weights()
        output = trainer.vllm_generation.vllm_client.generate([tiny.PROMPT], n=1, temperature=0.0,
                                                              max_tokens=tiny.TOKENS,
                                                              generation_kwargs={"ignore_eos": True})
        trainer.model.eval()  # in train mode, gradient checkpointing disables generate()'s cache
        print(json.dumps({"server": output["completion_ids"][0], "transformers": tiny.greedy(trainer.model),
                          "steps": trainer.state.global_step}))
        trainer.vllm_generation.vllm_client.close_communicator()


if __name__ == "__main__":
    main(*sys.argv[1:])
