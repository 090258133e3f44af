"""vLLM in a process that a test commands: a line of JSON in, a line of JSON out. Argument: LLM's options as JSON."""

import hashlib
import json
import logging
import os
import sys

logged = []
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # vLLM's own output


class Engine:
    def __init__(self, options):
        from vllm import LLM

        self.llm = LLM(**{"enforce_eager": True, "max_model_len": 64, "dtype": "float32", "max_num_seqs": 4,
                          "kv_cache_memory_bytes": 1 << 26, **options})
        keep = logging.Handler()  # after LLM(), which configures logging
        keep.emit = lambda record: logged.append(record.getMessage())
        ours = logging.getLogger("vllm.plugins.bascule")
        ours.setLevel(logging.INFO)  # a process that has imported TRL passes on its own level
        ours.addHandler(keep)

    def generate(self, prompt, tokens):
        from vllm import SamplingParams, TokensPrompt

        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        outputs = self.llm.generate([TokensPrompt(prompt_token_ids=prompt)], sampling, use_tqdm=False)
        return list(outputs[0].outputs[0].token_ids)

    def generate_across_versions(self, prompt, tokens):
        """The tokens, and the versions from which vLLM says they come, as [version, begin, end]."""
        from vllm import SamplingParams, TokensPrompt

        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        output = self.llm.generate([TokensPrompt(prompt_token_ids=prompt)], sampling, use_tqdm=False)[0].outputs[0]
        return [list(output.token_ids), [[each.version, each.start, each.end] for each in output.weight_versions]]

    def generate_adapted(self, prompts, tokens, adapter=None, **sampling):
        """For each prompt the tokens and their log-probabilities, or the stop_reason."""
        import bascule.vllm
        from vllm import SamplingParams, TokensPrompt

        sampling = SamplingParams(**{"temperature": 0, "max_tokens": tokens, "ignore_eos": True, "logprobs": 0, **sampling})
        request = bascule.vllm.adapter(adapter) if adapter else None
        outputs = self.llm.generate([TokensPrompt(prompt_token_ids=each) for each in prompts], sampling, use_tqdm=False,
                                    lora_request=request)
        return [[list(each.token_ids), [at[token].logprob for at, token in zip(each.logprobs or [], each.token_ids)],
                 each.stop_reason] for output in outputs for each in output.outputs]

    def generate_in_steps(self, prompt, tokens, adapter):
        """Answers twice: "begun" once there is a token, and then the tokens."""
        import bascule.vllm
        from vllm import SamplingParams, TokensPrompt

        engine, begun = self.llm.llm_engine, False
        engine.add_request("in steps", TokensPrompt(prompt_token_ids=prompt),
                           SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True),
                           lora_request=bascule.vllm.adapter(adapter))
        while engine.has_unfinished_requests():
            for output in engine.step():
                if not begun:
                    print(json.dumps("begun"), file=answers, flush=True)
                    begun = True
        return list(output.outputs[0].token_ids)

    def adapters(self):
        """What the engine core says of them."""
        return self.llm.llm_engine.engine_core.call_utility("bascule_adapters")

    def join(self, endpoint, **info):
        self.llm.init_weight_transfer_engine({"init_info": {"endpoint": endpoint, **info}})

    def sleep(self):
        self.llm.sleep(level=1)

    def wake_up(self):
        self.llm.wake_up()

    def pause(self):
        self.llm.llm_engine.engine_core.call_utility("pause_scheduler", "keep", False)

    def resume(self):
        self.llm.llm_engine.engine_core.call_utility("resume_scheduler")

    # ---- for an engine in this process ----

    def scatters(self):
        return self.llm.collective_rpc(lambda worker: worker.weight_transfer_engine.rank.scatter is not None)[0]

    def logged(self):
        lines = list(logged)
        logged.clear()
        return lines

    def parameters(self):
        """A hash of the parameters' bytes, and their addresses."""
        return self.llm.collective_rpc(parameters)[0]

    def digests(self):
        """By parameter."""
        return self.llm.collective_rpc(digests)[0]

    def move_parameters(self):
        self.llm.collective_rpc(move_parameters)

    def load_all_but(self, folder, name):
        return self.llm.collective_rpc(load_all_but, args=(folder, name))[0]

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


def parameters(worker):
    tensors = dict(worker.model_runner.get_model().named_parameters())
    content = hashlib.sha256(json.dumps(digests(worker)).encode())
    return content.hexdigest(), {name: each.data_ptr() for name, each in tensors.items()}


def digests(worker):
    import tiny

    return {name: tiny.digest(each) for name, each in worker.model_runner.get_model().named_parameters()}


def load_all_but(worker, folder, name):
    from safetensors.torch import load_file

    from bascule.vllm.load import load

    model = worker.model_runner.get_model()
    tensors = {each: tensor for each, tensor in load_file(f"{folder}/model.safetensors").items() if each != name}
    load(model, worker.model_runner.model_config, tensors)


def move_parameters(worker):
    for each in worker.model_runner.get_model().parameters():
        each.data = each.data.clone()


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
