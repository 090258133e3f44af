"""A server with SGLang's routes for weights and adapters, which runs SGLang's own code for them, without kernels or scheduler.

A process is a tensor-parallel rank of torch.distributed; rank 0 serves HTTP. Argument: the port.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import tiny
import torch
import torch.distributed
from sglang.srt.lora.lora_config import LoRAConfig
from sglang.srt.managers import io_struct
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.managers.tp_worker import BaseTpWorker
from sglang.srt.model_executor.model_runner_components import weight_updater
from sglang.srt.runtime_context import get_parallel
from sglang.srt.utils.common import normalize_serialized_named_tensor_payloads


class Model(torch.nn.Module):
    """Loads as SGLang's models do: copies what it is given, and knows nothing of what is missing."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def load_weights(self, weights):
        for name, tensor in weights:
            if name == "refused":
                raise ValueError("there is no parameter named 'refused'")
            self.kept[name] = tensor.clone()


class Rank(BaseTpWorker):
    """SGLang's worker of one rank, with a model of plain torch."""

    model_runner = None

    def __init__(self, model):
        self.model_runner = SimpleNamespace(
            load_lora_adapter_from_tensors=self.keep_adapter, weight_updater=weight_updater.WeightUpdater(
                tp_rank=torch.distributed.get_rank(), device="cpu", gpu_id=0, model_config=None,
                custom_weight_loaders=["bascule.sglang.load"], get_model=lambda: model, update_model_fields=None,
                recapture_cuda_graph=None, get_model_runner=None))
        self.adapters = {}

    def keep_adapter(self, reference, tensors, config, added_tokens):
        parsed = LoRAConfig.from_dict(config)
        assert reference.lora_name not in self.adapters, "already loaded"
        self.adapters[reference.lora_name] = (parsed.lora_alpha / parsed.r,
                                              {name: tiny.digest(tensor) for name, tensor in tensors.items()})
        return SimpleNamespace(success=True)

    def weight_update_runners(self):
        return [("target", self.model_runner)]

    def forward_batch_generation(self, *arguments): ...


class Server:
    """What SGLang's tokenizer manager and scheduler do with these routes, on each rank."""

    def __init__(self):
        self.model = Model()
        self.worker = Rank(self.model)
        self.updater = SchedulerWeightUpdaterManager(
            tp_worker=self.worker, draft_worker=None, memory_saver_adapter=None, flush_cache=lambda **options: self.paused,
            is_fully_idle=lambda: True, scheduler=SimpleNamespace(record_weight_version_change=self.record))
        self.paused, self.version, self.calls = False, None, []

    def record(self, new_version):
        self.version = new_version or self.version

    def answer(self, route, body):
        """Whether it succeeded, and the answer."""
        self.calls.append(route)
        if route == "server_info":
            return True, {"tp_size": torch.distributed.get_world_size(), "pp_size": 1,
                          "custom_weight_loader": ["bascule.sglang.load"]}
        if route == "state":
            calls, self.calls = self.calls[:-1], []
            return True, {"weights": {name: tiny.digest(each) for name, each in self.model.kept.items()},
                          "adapters": self.worker.adapters, "paused": self.paused, "version": self.version, "calls": calls}
        if route in ("pause_generation", "continue_generation"):
            self.paused = route == "pause_generation"
            return True, {}
        if route == "unload_lora_adapter":
            return self.worker.adapters.pop(body["lora_name"], None) is not None, {}
        request = {"begin_weight_update": io_struct.BeginWeightUpdateReqInput,
                   "end_weight_update": io_struct.EndWeightUpdateReqInput,
                   "update_weights_from_tensor": io_struct.UpdateWeightsFromTensorReqInput,
                   "load_lora_adapter_from_tensors": io_struct.LoadLoRAAdapterFromTensorsReqInput}[route](**body)
        if "serialized_named_tensors" in body:
            request.serialized_named_tensors = normalize_serialized_named_tensor_payloads(request.serialized_named_tensors)
        if route == "load_lora_adapter_from_tensors":
            request.lora_id = body["lora_name"]
            try:
                return self.worker.load_lora_adapter_from_tensors(request).success, {}
            except RuntimeError as error:  # only here: elsewhere SGLang's server would end
                return False, {"message": str(error)}
        found = getattr(self.updater, route)(request)
        return found.success, {"message": found.message}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
        everyone([(self.path.strip("/"), body)])
        succeeded, answer = server.answer(self.path.strip("/"), body)
        self.send_response(200 if succeeded else 400)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_GET = do_POST

    def log_message(self, *arguments): ...


def everyone(request):
    torch.distributed.broadcast_object_list(request)
    return request[0]


torch.distributed.init_process_group("gloo")
weight_updater.get_model = lambda: SimpleNamespace(weight_cache_mode="off")  # of what a launch publishes
get_parallel().override_permanently(tp_rank=torch.distributed.get_rank(), tp_size=torch.distributed.get_world_size(),
                                    tp_group=SimpleNamespace(cpu_group=torch.distributed.group.WORLD))
server = Server()
if torch.distributed.get_rank() == 0:
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
else:
    while True:
        server.answer(*everyone([None]))
