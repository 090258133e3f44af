"""For scripts/test-clients: tests a real engine with real clients and the demo's checkpoint, which adds numbers below
50 and writes digits in reverse order. Compares the answers with the same model in plain numpy."""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy
import openai

KEY = "sesame"
CHARACTERS = "0123456789+= "
END = 13


class PlainModel:
    """The checkpoint's Llama model in numpy: computes the whole text at once, without a cache."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        self.weights = {}
        for name, tensor in json.loads(data[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            assert tensor["dtype"] == "BF16"
            begin, end = tensor["data_offsets"]
            halves = numpy.frombuffer(data[8 + size + begin : 8 + size + end], "<u2").astype("<u4") << 16
            self.weights[name] = halves.view("<f4").reshape(tensor["shape"]).astype(numpy.float64)

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def log_probabilities(self, tokens):
        """The log-probabilities of the token after each position, [T, V]."""
        c, w = self.config, self.weights
        heads, width, length = c["num_attention_heads"], c["head_dim"], len(tokens)
        angles = numpy.outer(numpy.arange(length), c["rope_theta"] ** (-numpy.arange(0, width, 2) / width))
        cos, sin = (numpy.concatenate([f(angles)] * 2, -1)[:, None] for f in (numpy.cos, numpy.sin))

        def turned(x):
            return x * cos + numpy.concatenate([-x[..., width // 2 :], x[..., : width // 2]], -1) * sin

        x = w["model.embed_tokens.weight"][tokens]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            h = self.norm(x, at + "input_layernorm.weight")
            q, k, v = ((h @ w[f"{at}self_attn.{n}_proj.weight"].T).reshape(length, heads, width) for n in "qkv")
            scores = numpy.einsum("qhd,khd->hqk", turned(q), turned(k)) / math.sqrt(width)
            scores = numpy.where(numpy.tri(length, dtype=bool), scores, -numpy.inf)
            parts = numpy.exp(scores - scores.max(-1, keepdims=True))
            parts /= parts.sum(-1, keepdims=True)
            mixed = numpy.einsum("hqk,khd->qhd", parts, v).reshape(length, -1)
            x = x + mixed @ w[at + "self_attn.o_proj.weight"].T
            h = self.norm(x, at + "post_attention_layernorm.weight")
            gate = h @ w[at + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + numpy.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
        logits = self.norm(x, "model.norm.weight") @ w["lm_head.weight"].T
        logits -= logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))

    def likelihood(self, context, continuation):
        """The continuation's log-probability, and whether greedy decoding gives it."""
        tokens = ids(context + continuation)
        rows = self.log_probabilities(tokens)[len(context) - 1 : -1]
        chosen = tokens[len(context) :]
        return sum(row[t] for row, t in zip(rows, chosen)), all(row.argmax() == t for row, t in zip(rows, chosen))

    def greedy(self, context, count):
        tokens = ids(context)
        for _ in range(count):
            tokens.append(int(self.log_probabilities(tokens)[-1].argmax()))
            if tokens[-1] == END:
                break
        return "".join(CHARACTERS[t] for t in tokens[len(context) :] if t != END)


def ids(text):
    return [CHARACTERS.index(c) for c in text]


def near(found, expected, what):
    assert abs(found - expected) < 1e-3, f"{what}: found {found}, expected {expected}"


def same(found, expected, what):
    assert found == expected, f"{what}: found {found!r}, expected {expected!r}"


def refused(error, call, words):
    try:
        call()
    except error as refusal:
        assert words in str(refusal), f"expected {words!r}, found {refusal}"
        return
    raise AssertionError(f"expected {error.__name__}")


def test_completions(client, plain):
    question = "12+34="
    answer = client.completions.create(model="demo", prompt=question, temperature=0, max_tokens=6, logprobs=3)
    choice = answer.choices[0]
    same(choice.text, plain.greedy(question, 6), "greedy text")
    same(choice.text, "64", "12+34, reversed")
    same(choice.finish_reason, "stop", "finish_reason")
    same(answer.usage.prompt_tokens, len(question), "prompt tokens")
    same(len(choice.logprobs.tokens), answer.usage.completion_tokens, "tokens with log-probabilities")
    near(sum(choice.logprobs.token_logprobs[:2]), plain.likelihood(question, "64")[0], "log-probability")
    best = plain.log_probabilities(ids(question))[-1]
    for token, logprob in choice.logprobs.top_logprobs[0].items():
        near(logprob, best[CHARACTERS.index(token)], f"log-probability of {token}")
    same(client.completions.create(model="demo", prompt=question).choices[0].logprobs, None, "logprobs by default")

    # "raw", the default, ignores the temperature; "processed" includes it.
    for mode, temperature in (("raw", 1), ("processed", 0.5)):
        sampled = client.completions.create(model="demo", prompt=question, temperature=0.5, seed=3, max_tokens=1, logprobs=0,
                                            extra_body={"logprobs_mode": mode}).choices[0]
        logits = best / temperature
        expected = logits - numpy.log(numpy.exp(logits).sum())
        near(sampled.logprobs.token_logprobs[0], expected[CHARACTERS.index(sampled.logprobs.tokens[0])], mode)

    echoed = client.completions.create(model="demo", prompt=question + "64", max_tokens=0, echo=True, logprobs=1).choices[0]
    same(echoed.text, question + "64", "echo")
    same(echoed.logprobs.token_logprobs[0], None, "the first token's")
    rows = plain.log_probabilities(ids(echoed.text))
    for i, logprob in enumerate(echoed.logprobs.token_logprobs[1:]):
        near(logprob, rows[i][ids(echoed.text)[i + 1]], f"echoed token {i + 1}")
    told = client.completions.create(model="demo", prompt=question, max_tokens=1, extra_body={"prompt_logprobs": 2})
    near(told.choices[0].prompt_logprobs[1]["2"]["logprob"], rows[0][2], "prompt_logprobs")

    stopped = client.completions.create(model="demo", prompt=question, temperature=0, max_tokens=6, stop=["4", "x"]).choices[0]
    same((stopped.text, stopped.finish_reason, stopped.stop_reason), ("6", "stop", "4"), "stop")

    ours = {"return_token_ids": True, "min_p": 0.9, "top_k": -1, "strange": 1}
    raw = client.completions.with_raw_response.create(model="demo", prompt=[question, "1+1="], n=2, max_tokens=3, extra_body=ours)
    same(raw.headers["x-bascule-ignored-fields"], "strange", "ignored fields")
    parsed = raw.parse()
    same(len(parsed.choices), 4, "choices")
    same(parsed.choices[0].token_ids[:2], ids("64"), "token ids, with a min_p that keeps only the likeliest")
    same(parsed.choices[2].prompt_token_ids, ids("1+1="), "prompt token ids")


def test_chat(client, plain):
    messages = [{"role": "user", "content": "12+34="}]
    answer = client.chat.completions.create(model="demo", messages=messages, temperature=0, logprobs=True, top_logprobs=2)
    same(answer.choices[0].message.content, plain.greedy("12+34=", 6), "chat")
    same(answer.choices[0].message.role, "assistant", "role")
    same(answer.usage.prompt_tokens, 6, "the template adds nothing")
    content = answer.choices[0].logprobs.content
    near(content[0].logprob + content[1].logprob, plain.likelihood("12+34=", "64")[0], "chat's log-probabilities")
    same(content[0].bytes, [ord("6")], "bytes")
    same(len(content[0].top_logprobs), 2, "top_logprobs")
    parts = [{"role": "user", "content": [{"type": "text", "text": "12+34="}]}]
    short = client.chat.completions.create(model="demo", messages=parts, temperature=0, max_completion_tokens=1)
    same((short.choices[0].message.content, short.choices[0].finish_reason), ("6", "length"), "max_completion_tokens")


def test_streams(client):
    whole = client.completions.create(model="demo", prompt="23+19=", seed=7, n=2, max_tokens=20,
                                      extra_body={"ignore_eos": True})
    texts, usage = {0: "", 1: ""}, None
    with client.completions.create(model="demo", prompt="23+19=", seed=7, n=2, max_tokens=20, stream=True,
                                   stream_options={"include_usage": True}, extra_body={"ignore_eos": True}) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    same(texts, {c.index: c.text for c in whole.choices}, "streamed texts")
    same(usage.completion_tokens, 40, "usage at the end")

    messages = [{"role": "user", "content": "23+19="}]
    content, finish, roles = "", None, []
    for chunk in client.chat.completions.create(model="demo", messages=messages, temperature=0, stream=True):
        delta = chunk.choices[0].delta
        roles.append(delta.role)
        content += delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
    same((content, finish, roles[0]), ("24", "stop", "assistant"), "streamed chat")
    with client.chat.completions.stream(model="demo", messages=messages, temperature=0) as helper:  # has state
        same(helper.get_final_completion().choices[0].message.content, "24", "the helper's chat")


def test_errors(client, url):
    refused(openai.BadRequestError, lambda: client.completions.create(model="demo", prompt="1", temperature=-1), "temperature")
    refused(openai.BadRequestError, lambda: client.completions.create(model="demo", prompt="word"), "prompt")
    refused(openai.NotFoundError, lambda: client.completions.create(model="huge", prompt="1"), "not served here")
    other = openai.OpenAI(base_url=url + "/v1", api_key="open", max_retries=0)
    refused(openai.AuthenticationError, other.models.list, "key")
    same([m.id for m in client.models.list()], ["demo"], "models")
    same(client.models.retrieve("demo").id, "demo", "model")


def metric(url, name):
    text = urllib.request.urlopen(url + "/metrics").read().decode()  # needs no key
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"bascule_engine_{name} ")))


def problems(count):
    return [(a, b, f"{a + b:02d}"[::-1]) for a, b in ((7 * i % 40 + 10, 11 * i % 40 + 10) for i in range(count))]


def write_tasks(folder):
    lines = []
    for a, b, right in problems(40):
        wrong = f"{(a + b + 1) % 100:02d}"[::-1], f"{(a + b + 10) % 100:02d}"[::-1]
        lines.append(json.dumps({"question": f"{a}+{b}=", "choices": [right, *wrong], "answer": right}))
    (folder / "sums.jsonl").write_text("\n".join(lines) + "\n")
    shared = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/sums.jsonl\ntest_split: test\n"
    shared += 'doc_to_text: "{{question}}"\ntarget_delimiter: ""\n'
    (folder / "sums_choice.yaml").write_text(
        "task: sums_choice\noutput_type: multiple_choice\n" + shared +
        'doc_to_choice: "{{choices}}"\ndoc_to_target: 0\nmetric_list:\n  - metric: acc\n')
    (folder / "sums_greedy.yaml").write_text(
        "task: sums_greedy\noutput_type: generate_until\n" + shared +
        'doc_to_target: "{{answer}}"\ngeneration_kwargs:\n  until: [" "]\n  max_gen_toks: 4\n  temperature: 0\n'
        "metric_list:\n  - metric: exact_match\n")


def test_lm_eval(url, plain, folder):
    write_tasks(folder)
    environment = dict(os.environ, OPENAI_API_KEY=KEY, HF_HOME=str(folder / "hf"), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args",
               f"model=demo,base_url={url}/v1/completions,tokenizer_backend=remote,auth_token={KEY},num_concurrent=4",
               "--tasks", "sums_choice", "sums_greedy", "--include_path", str(folder), "--output_path", str(folder / "out"),
               "--log_samples"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    results = json.loads(next((folder / "out").rglob("results_*.json")).read_text())["results"]

    right = 0
    for line in next((folder / "out").rglob("samples_sums_choice_*.jsonl")).read_text().splitlines():
        sample = json.loads(line)
        question, choices = sample["doc"]["question"], sample["doc"]["choices"]
        expected = [plain.likelihood(question, choice) for choice in choices]
        for choice, response, (logprob, greedy) in zip(choices, sample["resps"], expected):
            near(float(response[0][0]), logprob, f"lm-eval's log-probability of {choice} after {question}")
            same(str(response[0][1]), str(bool(greedy)), f"lm-eval's is_greedy of {choice} after {question}")
        right += max(range(3), key=lambda i: expected[i][0]) == 0
    near(results["sums_choice"]["acc,none"], right / 40, "lm-eval's accuracy")
    exact = sum(plain.greedy(f"{a}+{b}=", 4) == answer for a, b, answer in problems(40))
    near(results["sums_greedy"]["exact_match,none"], exact / 40, "lm-eval's exact match")
    print(f"test-clients: lm-eval: accuracy {right}/40, exact match {exact}/40, as in plain numpy")


def main():
    engine, demo = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="bascule-clients-") as name:
        folder = pathlib.Path(name)
        shutil.copytree(demo, folder / "demo")
        (folder / "demo" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (folder / "key").write_text(KEY + "\n")
        plain = PlainModel(folder / "demo")
        process = subprocess.Popen([engine, "--model", str(folder / "demo"), "--listen", "127.0.0.1:0", "--threads", "1",
                                    "--cache-bytes", "16MiB", "--api-key-file", str(folder / "key")],
                                   stdout=subprocess.PIPE, text=True)
        try:
            url = process.stdout.readline().split()[-1]
            client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
            while True:
                try:
                    urllib.request.urlopen(url + "/health")
                    break
                except OSError:
                    time.sleep(0.1)
            for what, test in (("openai: completions", lambda: test_completions(client, plain)),
                               ("openai: chat", lambda: test_chat(client, plain)),
                               ("openai: streams", lambda: test_streams(client)),
                               ("openai: errors and the key", lambda: test_errors(client, url)),
                               ("lm-eval", lambda: test_lm_eval(url, plain, folder))):
                begin = time.monotonic()
                test()
                print(f"test-clients: {what}: passed in {time.monotonic() - begin:.1f} s", flush=True)
            same(metric(url, "running"), 0, "running requests at the end")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    print(f"test-clients: openai {openai.__version__}, lm-eval {__import__('importlib.metadata').metadata.version('lm_eval')}")


if __name__ == "__main__":
    main()
