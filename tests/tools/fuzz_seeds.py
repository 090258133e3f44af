"""Seeds for the fuzz targets from what the repository has: fixtures, URLs of the docs, templates. scripts/fuzz uses it;
tests/fuzz/seeds.cpp makes the seeds that only our own code can make."""

import json
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/trainer_ref"


def numbers(count, size):
    """Inputs that are read as numbers: steps of a random world."""
    rng = random.Random(1)
    return [rng.randbytes(size) for _ in range(count)]


def in_folder(folder, name):
    file = folder / name
    return file.read_bytes() if file.exists() else b""


def config():
    files = ["config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"]
    folders = sorted({file.parent for file in FIXTURES.rglob("config.json")} | {ROOT / "trainer_ref/demo"})
    return [b"\0".join(in_folder(folder, name) for name in files) for folder in folders]


def endpoint():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "schemes").rglob("README.md")]
    urls = set()
    for page in pages:
        urls |= set(re.findall(r"\b(?:[a-z-]+://[^\s`\"')|]+|[\w.\[\]:]+:\d{4,5})", page.read_text()))
    return sorted(url.encode() for url in urls if len(url) < 300)


def flags():
    section = {"worker-threads": 4, "rate": 0.25, "verbose": True, "urls": ["a", "b"], "patience": "3s",
               "cache-bytes": "1GiB", "fuzz": {"seed": 7, "limit": 3}, "other": {"max-batch": 8}}
    return [json.dumps(section).encode() + b"\0--model=m\0--no-verbose\0--steps\0" + b"12",
            b"---\nworker-threads: 4\nrate: 2.5e-1\nverbose: true\nurls:\n  - a\n  - 'b'\npatience: 3s\nmodel: >\n  m\n"
            b"fuzz: {seed: 0x1F, \"limit\": ~}\nother:\n  max-batch: !!int 8\n  listen: &a [*a]\n",
            b"\0--help", b"\0BASCULE_RATE=0.5\0--worker_threads\0" + b"-3", b"{\"listen\": 1}\0BASCULE_MODELS=x"]


def http():
    def post(path, body, more=""):
        text = body if isinstance(body, str) else json.dumps(body)
        return (f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{more}"
                f"Content-Length: {len(text.encode())}\r\n\r\n{text}").encode()
    call = {"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0.5}
    tools = chat | {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
                    "messages": chat["messages"] + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                                    {"role": "tool", "content": [{"type": "text", "text": "3"}]}]}
    text = {"model": "tiny", "prompt": ["Hello", "you"], "n": 2, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 1,
            "logprobs": 2, "stop": ["\n"], "echo": True, "stream": False, "stop_token_ids": [3], "max_tokens": 4}
    return [post("/v1/chat/completions", chat), post("/v1/chat/completions", tools),
            post("/v1/chat/completions", chat | {"continue_final_message": True, "add_generation_prompt": False}),
            post("/v1/completions", text), post("/v1/completions", text | {"prompt": [1, 2, 3], "stream": True}),
            post("/tokenize", {"prompt": "Hello", "return_token_strs": True}), post("/tokenize", chat),
            post("/detokenize", {"tokens": [1, 2, 3]}),
            post("/v1/completions", text, "Authorization: Bearer key\r\nExpect: 100-continue\r\n"),
            post("/tokenize", {"prompt": "a"}) + post("/detokenize", {"tokens": []}) + b"GET /health HTTP/1.0\r\n\r\n",
            b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"prompt\": \"abc\"\r\n1;x=y\r\n}\r\n0\r\n\r\n",
            b"GET Http:// HTTP/1.1\r\nHost: x\r\n\r\n",
            b"HEAD http://host/v1/models?x HTTP/1.1\r\nConnection: close\r\n\r\n"]


def manifest():
    return [b"\x01bascule sender.lock 1 pid 0000000071 epoch 00000000000000000007 version 00000000000000000003\n", b"\x01"]


def reward():
    answers = [{"id": 7, "rewards": [1, None, {"reward": 0.5}]}, {"id": 7, "rewards": [True, -1e6, 2.5]}, {"id": 8}]
    lists = ["exact_match,exec:./reward.py=0.5", "number_match=2, math_match", r"exec:./a\,b.py x,http://host:9000/score?k\=1",
             "finished,within_length=1e-3"]
    sums = [(r"so \boxed{\frac{3}{4}}", "0.75"), ("the answer is 1,234.50 dollars.", "#### 1234.5"), (r"$x = 2^{10}$", "1024"),
            (r"#### 50\%", "50"), (r"\boxed{2\sqrt{2}}", r"2\sqrt2"), ("It is -3 1/2 million.", "-3.5e6"),
            (r"½ of \text{the} ¾ − 5°", "five"), (r"\left( 1, 2 \right)", "(1,2)")]
    return ([b"\0\3" + json.dumps(answer).encode() for answer in answers] + [b"\1" + text.encode() for text in lists] +
            [b"\2" + a.encode() + b"\0" + b.encode() for a, b in sums] + [b"\3\2\0one\ntwo\n\nthree"])


def safetensors():
    files = [file.read_bytes() for file in FIXTURES.rglob("*.safetensors")]
    header = b'{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}'
    return [file for file in files if len(file) < 6000] + [len(header).to_bytes(8, "little") + header + b"x" * 12]


def template():
    conversations = json.loads((FIXTURES / "chat/fixtures/conversations.json").read_text())
    features = json.loads((FIXTURES / "chat/fixtures/features.json").read_text())
    variables = json.dumps({"variables": features["variables"]}).encode()
    seeds = [text.encode() + b"\0" + variables for text in features["expected"]]
    for file in sorted((FIXTURES / "chat/fixtures/templates").glob("*.jinja")):
        seeds += [file.read_bytes() + b"\0" + json.dumps(each).encode() for each in conversations.values()]
    return seeds


def texts():
    """For each tokenizer of the fixtures, the texts of its cases."""
    for folder in sorted((FIXTURES / "text/fixtures").iterdir()):
        values = [case["value"] for case in json.loads((folder / "expected.json").read_text())]
        yield folder, [value.encode() for value in values if isinstance(value, str)]


def text():
    return [bytes([i]) + each for i, (_, known) in enumerate(texts()) for each in known[:60]]


def small(file, most):
    """A tokenizer.json with a vocabulary and merges so small that the search can change them."""
    model = file["model"]
    added = {token["content"] for token in file["added_tokens"]}
    pieces = sorted(model["vocab"].items(), key=lambda piece: piece[1])
    model["vocab"] = {piece: i for piece, i in pieces if len(piece) == 1 or piece in added or i < most}
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model.get("merges", [])]
    if "merges" in model:
        model["merges"] = [m for m in merges if {*m, "".join(m)} <= model["vocab"].keys()][:most]
    return file


def tokenizer():
    seeds = []
    for folder, known in texts():
        file = small(json.loads((folder / "tokenizer.json").read_text()), 40)
        seeds += [json.dumps(file, ensure_ascii=False).encode() + b"\0" + each for each in known[:3]]
    return seeds


SEEDS = {"config": config, "endpoint": endpoint, "flags": flags, "http": http, "manifest": manifest, "reward": reward,
         "safetensors": safetensors, "sender": lambda: numbers(40, 400), "template": template, "text": text,
         "tls": lambda: numbers(40, 60), "tokenizer": tokenizer}


def seeds_of(target):
    return SEEDS[target]() if target in SEEDS else []
