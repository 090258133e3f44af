#!/usr/bin/env python3
"""An API server of Atropos with one environment in it: sums whose digits are written in reverse order.

    atropos_environment.py ENGINE_URL SEQUENCES

Prints its URL. It answers as atroposlib's server does, which python/tests/clients/test_atropos.py runs instead.
"""
import http.server
import json
import random
import sys
import urllib.request

ENGINE, SEQUENCES, GROUP = sys.argv[1], int(sys.argv[2]), 8
registered = {}


def post(path, body):
    request = urllib.request.Request(ENGINE + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def group():
    a, b = random.randrange(50), random.randrange(50)
    answer = f"{a + b:02}"[::-1]
    prompt = post("/tokenize", {"prompt": f"{a:02}+{b:02}="})["tokens"]
    choices = post("/v1/completions", {"prompt": prompt, "max_tokens": 3, "n": GROUP, "logprobs": 0, "temperature": 1,
                                       "return_token_ids": True})["choices"]
    return {"tokens": [prompt + choice["token_ids"] for choice in choices],
            "masks": [[-100] * len(prompt) + choice["token_ids"] for choice in choices],
            "scores": [float(choice["text"] == answer) for choice in choices],
            "inference_logprobs": [[1.0] * len(prompt) + choice["logprobs"]["token_logprobs"] for choice in choices],
            "overrides": None, "env_id": 0}


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path == "/info":
            return self.answer({"batch_size": registered.get("batch_size", -1), "max_token_len": -1})
        if self.path == "/status":
            return self.answer({"current_step": 0, "queue_size": 0})
        return self.answer({"batch": [group() for _ in range(SEQUENCES // GROUP)]})

    def do_POST(self):
        registered.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer({"uuid": 1})

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
