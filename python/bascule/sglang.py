"""SGLang takes versions and adapters from a trainer.

    python -m sglang.launch_server --model-path MODEL --custom-weight-loader bascule.sglang.load

    server = bascule.sglang.Server("http://127.0.0.1:30000")       # in the trainer
    server.send(sender)                                            # after each step

The part that runs in SGLang needs only torch; the trainer does not need SGLang.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import logging
import os
import pickle
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import torch

from ._checks import seconds, text, url, whole
from ._streamed import check_served
from .errors import BasculeError, text_of
from .lora import adapter_of
from .lora_config import parsed
from .receiver import Receiver
from .sender import Sender

_LOADER = "bascule.sglang.load"
_LONGEST = 10**6  # seconds that an answer may take: sockets refuse an infinite time
_logger = logging.getLogger("bascule")
_receivers: dict[str, Receiver] = {}  # of this rank, by endpoint: at most one

# ---- in each of SGLang's ranks


def load(model: Any, named_tensors: Sequence[tuple[str, Any]]) -> None:
    """What --custom-weight-loader names: joins the endpoint of request(), takes its version and gives the tensors to SGLang's
    model, which must not write them. Blocks SGLang's scheduler meanwhile, at most for the request's timeout if no version
    comes.

    Raises nothing, since SGLang would end the server, and other ranks would wait for this one: errors go to the trainer's
    report and into the log.
    """
    try:
        _load(model, json.loads(named_tensors[0][0]))
    except Exception as error:
        _logger.error("SGLang's weights were not updated as the trainer asked: %s", text_of(error))


def _load(model: Any, asked: dict[str, Any]) -> None:
    receiver, version = _joined(asked["endpoint"], asked["server"]), asked["version"]
    if not version:
        return
    new = receiver.take(version, asked["timeout"]) is not None  # not for a second model of this rank, such as a draft
    try:
        model.load_weights(receiver.weights().items())
    except BaseException as error:
        receiver.finish(error)
        raise
    if new:
        receiver.finish()


def _joined(endpoint: str, server: str) -> Receiver:
    if endpoint not in _receivers:
        while _receivers:
            _receivers.popitem()[1].close()
        _receivers[endpoint] = Receiver(endpoint, worker=_name(server))
    return _receivers[endpoint]


def _name(server: str) -> str:
    """This rank's name at the sender. A server that is started again takes the place of the old one if it has a name."""
    if not server:
        return f"sglang-{socket.gethostname()}-{os.getpid()}"
    return f"sglang-{server}-{torch.distributed.get_rank() if torch.distributed.is_initialized() else 0}"


# ---- in the trainer


def request(endpoint: str, version: int = 0, timeout: float = 60, server: str = "") -> tuple[str, torch.Tensor]:
    """What load() gets instead of weights, for SGLang's update_weights_from_tensor(): the version to take, or a newer one; 0:
    none, only join. server: the server's name, which is part of its ranks' names; default: its host and process."""
    asked = {"endpoint": url("endpoint", endpoint), "version": whole("version", version, most=2**63 - 1),
             "timeout": seconds("timeout", timeout), "server": text("server", server)}
    return json.dumps(asked), torch.zeros(0)


def adapter_request(model: torch.nn.Module, name: str = "default", served_as: str = "", ranks: int = 1) -> dict[str, Any]:
    """The body of POST /load_lora_adapter_from_tensors for an adapter of a PEFT model, with a checksum of each tensor.

    Each B is multiplied by its layer's scale, since SGLang ignores use_rslora and patterns. served_as: what requests name;
    default: `name`. ranks: SGLang's tensor-parallel size.

    Raises BasculeError (INVALID_ARGUMENT), which names the key of the config or the tensor that cannot be sent.
    """
    served_as = text("served_as", served_as) or name
    sent = adapter_of(model, text("name", name))
    config = parsed(sent.description, f"adapter {name!r}")
    if config["rank_pattern"]:
        raise BasculeError(f"adapter {name!r}: its modules have several ranks (rank_pattern {config['rank_pattern']}), and "
                           "SGLang has one for all; train it with one rank", "INVALID_ARGUMENT")
    if other := next((each for each in sent.places if ".lora_" not in each), None):
        raise BasculeError(f"adapter {name!r}: tensor {other} is of modules_to_save, which SGLang does not load with an "
                           'adapter; send merged weights (adapters="merge")', "INVALID_ARGUMENT")
    tensors = {each: _scaled(place.tensor, sent.scales.get(each, 1.0)) for each, place in sent.places.items()}
    return {"lora_name": served_as, "config_dict": config,
            "serialized_named_tensors": [_pickled(tensors)] * whole("ranks", ranks, least=1),
            "expected_checksums": {each: _checksum(tensor) for each, tensor in tensors.items()}}


class Server:
    """A server of SGLang, as the trainer sees it.

    url: of its HTTP interface. ranks: how many ranks it has that load weights; default: its tp_size times its pp_size.
    timeout: how many seconds each of its answers may take, and its ranks may take to join. key: its --admin-api-key or
    --api-key. pause: what happens to running requests during an update: "retract" computes their prefixes again with the
    new weights, "abort" ends them.

    Raises BasculeError (INVALID_ARGUMENT), which names the argument.
    """

    def __init__(self, url: str, *, ranks: int | None = None, timeout: float = 180, key: str = "", pause: str = "retract"):
        if pause not in ("retract", "abort"):
            raise BasculeError(f'pause: expected "retract" or "abort", found {pause!r:.200}', "INVALID_ARGUMENT")
        self._url, self._key, self._pause = _http("url", url), _printable("key", key or ""), pause
        self._timeout = min(seconds("timeout", timeout), _LONGEST)
        if self._timeout == 0:
            raise BasculeError("timeout: expected more than 0 seconds, since each answer takes some, found 0",
                               "INVALID_ARGUMENT")
        self._ranks = ranks if ranks is None else whole("ranks", ranks, least=1)
        self._parallel = self._workers = 0  # its tp_size, and how many ranks load weights
        self._sender: Sender | None = None  # whose endpoint the ranks have joined
        self._failed = False  # whether the last update failed, so that the server stays paused

    def send(self, sender: Sender) -> Any:
        """Sends a version of the registered tensors, and returns the report once all ranks have loaded it. They generate while
        it is packed, and pause while they load it. At the first call they join the sender's endpoint. If some are not there
        any more, as after a restart of the server, it pauses at once, and they join again.

        If a rank fails, the server stays paused until an update succeeds, since its weights may be of several versions.
        Raises BasculeError: UNAVAILABLE names the ranks that do not serve the version and why, or a route that failed.
        """
        if self._sender is not sender:
            self._join(sender)
        elif len(sender.wait_for_workers(0)) < self._workers:
            self._join_again(sender)
        version = sender.version + 1
        sender.send_async()
        self._failed = True
        try:
            self._post("pause_generation", mode=self._pause)
            self._load(sender._endpoint, version)
        finally:
            report = sender.wait_async()
        check_served(report)
        self._post("continue_generation")
        self._failed = False
        return report

    def load_adapter(self, model: torch.nn.Module, name: str = "default", served_as: str = "") -> None:
        """Loads an adapter of a PEFT model, in place of one that the server has under this name. Arguments and errors as in
        adapter_request(). SGLang first ends the requests that use the old one."""
        self._look()
        body = adapter_request(model, name, served_as, self._parallel)
        with suppress(BasculeError):  # there is none
            self._post("unload_lora_adapter", lora_name=body["lora_name"])
        self._post("load_lora_adapter_from_tensors", **body)

    # ----

    def _look(self) -> Any:
        """What the server says about itself; keeps how many ranks it has."""
        found = self._ask("server_info", None)
        if not isinstance(found.get("tp_size"), int):
            raise BasculeError(f"{self._url}/server_info: expected SGLang's, which has tp_size, found {found!r:.200}",
                               "UNAVAILABLE")
        self._parallel = found["tp_size"]
        self._workers = self._ranks or found["tp_size"] * found.get("pp_size", 1)
        return found

    def _join(self, sender: Sender) -> None:
        if _LOADER not in (self._look().get("custom_weight_loader") or []):
            raise BasculeError(f"the SGLang server at {self._url} was not started for Bascule; start it with "
                               f"--custom-weight-loader {_LOADER}", "FAILED_PRECONDITION")
        self._post("pause_generation", mode=self._pause)  # else SGLang waits for the running requests
        try:
            self._load(sender._endpoint, 0)
        finally:
            if not self._failed:
                self._post("continue_generation")
        sender.wait_for_workers(self._workers, self._timeout)
        sender.expect_workers(self._workers)
        self._sender = sender

    def _join_again(self, sender: Sender) -> None:
        """The ranks also load the version that the sender offers to each worker that joins: it would evict a rank that does not
        take it in time. The server stays paused until the update has succeeded."""
        self._look()
        self._post("pause_generation", mode=self._pause)
        self._load(sender._endpoint, sender.version)
        sender.wait_for_workers(self._workers, self._timeout)
        sender.expect_workers(self._workers)

    def _load(self, endpoint: str, version: int) -> None:
        tensors = _pickled([request(endpoint, version, self._timeout, urlsplit(self._url).netloc.rpartition("@")[2])])
        self._post("begin_weight_update")
        try:
            self._post("update_weights_from_tensor", serialized_named_tensors=[tensors] * self._parallel, load_format=_LOADER,
                       flush_cache=bool(version), **({"weight_version": str(version)} if version else {}))
        finally:
            self._post("end_weight_update")

    def _post(self, route: str, **body: Any) -> Any:
        return self._ask(route, json.dumps(body).encode())

    def _ask(self, route: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._key}"} if self._key else {})}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self._url}/{route}", body, headers),
                                        timeout=self._timeout) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            raise BasculeError(f"{self._url}/{route} answered {error.code}: {error.read().decode(errors='replace'):.1000}",
                               "UNAVAILABLE") from None
        except (OSError, http.client.HTTPException) as error:
            raise BasculeError(f"{self._url}/{route}: {error}", "UNAVAILABLE") from None
        found = None
        with suppress(ValueError):
            found = json.loads(said)
        if not isinstance(found, dict):
            raise BasculeError(f"{self._url}/{route}: expected an answer of SGLang, which is an object in JSON, found "
                               f"{said[:200].decode(errors='replace')!r}", "UNAVAILABLE")
        return found


def _http(what: str, value: Any) -> str:
    """The base of an HTTP interface."""
    given = _printable(what, value)
    with suppress(ValueError):  # for example: the port is no number
        parts = urlsplit(given)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in given:
            return given.rstrip("/")
    raise BasculeError(f"{what}: expected a URL such as http://127.0.0.1:30000, found {value!r:.200}", "INVALID_ARGUMENT")


def _printable(what: str, value: Any) -> str:
    given = text(what, value)
    if not (given.isascii() and given.isprintable()):
        raise BasculeError(f"{what}: expected printable ASCII characters, as HTTP transfers them, found others",
                           "INVALID_ARGUMENT")
    return given


def _pickled(value: Any) -> str:
    """For SGLang's reader, which takes torch's tensors and plain containers only."""
    return base64.b64encode(pickle.dumps(value, protocol=4)).decode()


def _scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """In host memory, multiplied in F32 and rounded once, as a sender does it."""
    tensor = tensor.detach().cpu()
    return (tensor.float() * scale).to(tensor.dtype) if scale != 1 else tensor.contiguous()


def _checksum(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
