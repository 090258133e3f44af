"""vLLM in a process that a test commands: a line of JSON in, a line of JSON out. Argument: the LLM's, as JSON."""

import json
import os
import sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # vLLM's own output


class Engine:
    def __init__(self, options):
        from vllm import LLM

        self.llm = LLM(**{"enforce_eager": True, "max_model_len": 64, "dtype": "float32", "max_num_seqs": 4,
                          "kv_cache_memory_bytes": 1 << 26, **options})

    def generate(self, prompt, tokens):
        from vllm import SamplingParams, TokensPrompt

        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        outputs = self.llm.generate([TokensPrompt(prompt_token_ids=prompt)], sampling, use_tqdm=False)
        return list(outputs[0].outputs[0].token_ids)

    def join(self, endpoint):
        self.llm.init_weight_transfer_engine({"init_info": {"endpoint": endpoint}})

    def update(self, **info):
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": info})
        self.llm.finish_weight_update()
        self.llm.reset_prefix_cache()

    def rpc(self, method, **arguments):
        return self.llm.collective_rpc(method, kwargs=arguments)

    def reset_prefix_cache(self):
        return self.llm.reset_prefix_cache()

    def weight_version(self):
        return self.llm.get_weight_version()


def main():
    engine = Engine(json.loads(sys.argv[1]))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(engine, command.pop("what"))(**command)
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":  # vLLM starts its processes by spawn
    main()
