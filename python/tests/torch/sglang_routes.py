"""A process that answers SGLang's routes and loads with bascule.sglang.load, without SGLang. Argument: the port.

POST /trouble {"route": ..., "answer": ...} makes a route answer this text; null: closes the connection without an answer.
"""

import base64
import json
import pickle
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import bascule.sglang


class Model:
    def __init__(self):
        self.kept = {}

    def load_weights(self, weights):
        self.kept = {name: tensor.tolist() for name, tensor in weights}


class Handler(BaseHTTPRequestHandler):
    model, paused, trouble = Model(), False, {}

    def do_POST(self):
        route, cls = self.path.strip("/"), type(self)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        if route == "trouble":
            cls.trouble = {body["route"]: body["answer"]} if body else {}
        elif route in ("pause_generation", "continue_generation"):
            cls.paused = route == "pause_generation"
        elif route == "update_weights_from_tensor":
            for each in body["serialized_named_tensors"]:
                bascule.sglang.load(self.model, pickle.loads(base64.b64decode(each)))
        known = {"state": {"weights": self.model.kept, "paused": self.paused},
                 "server_info": {"tp_size": 1, "pp_size": 1, "custom_weight_loader": ["bascule.sglang.load"]}}
        answer = self.trouble.get(route, json.dumps(known.get(route, {"success": True})))
        if answer is not None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

    do_GET = do_POST

    def log_message(self, *arguments): ...


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
