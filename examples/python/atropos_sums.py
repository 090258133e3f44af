#!/usr/bin/env python3
"""An environment of Atropos: sums whose digits are written in reverse order, as 45+33= gives 87.

The trainer and the engine are the reference pair (docs/guide/atropos.md):

    run-api --port 8000
    bascule-engine --model trainer_ref/demo --sync shm:///tmp/grpo/sync --listen 127.0.0.1:9001
    python examples/python/atropos_sums.py serve --env.rollout_server_url http://127.0.0.1:8000 \
        --openai.base_url http://127.0.0.1:9001/v1
    bascule-train --rollouts atropos:http://127.0.0.1:8000 --model trainer_ref/demo --sync shm:///tmp/grpo/sync \
        --engines http://127.0.0.1:9001 --prompts-per-step 32 --group-size 8 --max-tokens 10 --out out/atropos
"""
import os
import random

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup

MODEL = os.environ.get("MODEL", "trainer_ref/demo")


class Sums(BaseEnv):
    name = "sums"

    @classmethod
    def config_init(cls):
        env = BaseEnvConfig(tokenizer_name=MODEL, group_size=8, use_wandb=False, wandb_name="sums", total_steps=1000,
                            max_token_length=32, max_num_workers=32, ensure_scores_are_not_same=False)
        # "vllm" asks for the log-probabilities of what was sampled; "openai" would leave them out.
        server = APIServerConfig(model_name=MODEL, base_url="http://127.0.0.1:9001/v1", api_key="none",
                                 server_type="vllm", num_requests_for_eval=8)
        return env, [server]

    async def setup(self):
        pass

    async def get_next_item(self):
        a, b = random.randrange(50), random.randrange(50)
        return f"{a:02}+{b:02}=", f"{a + b:02}"[::-1]

    async def collect_trajectories(self, item):
        prompt, answer = item
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            completions = await managed.completion(prompt=prompt, n=self.config.group_size, max_tokens=3, temperature=1.0)
            nodes = managed.get_state()["nodes"]
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[])
        for choice, node in zip(completions.choices, nodes):
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["scores"].append(float(choice.text == answer))
        return group, []

    async def evaluate(self, *args, **kwargs):
        pass


if __name__ == "__main__":
    Sums.cli()
