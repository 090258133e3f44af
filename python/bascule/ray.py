"""Senders and receivers in Ray actors, which find each other by a name in the cluster.

    from bascule.ray import Receiver, Sender

    self.sender = Sender("grpo")            # in the trainer's actor
    self.receiver = Receiver("grpo")        # in each engine's actor: waits for the sender

These are Bascule's Sender and Receiver, but take a name instead of an endpoint. They need ray, and a process that is
connected to a cluster: an actor, a task, or a driver after ray.init().
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import ray
import ray.util.client
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from . import _core, receiver, sender
from .errors import BasculeError, BasculeTimeoutError
from .sharded import rank_and_ranks

_PREFIX = "bascule:"  # of the names of the Ray actors that hold entries
_LOOK_EVERY = 0.1  # seconds between two looks for a name
# Options that each end reads from its own URL (docs/guide/endpoints.md).
_OF_BOTH_ENDS = {"digest", "timeout", "flip_timeout", "heartbeat", "suspect_after", "ctas", "token_file"}
_HOLDER_STARTS = 60  # seconds that Ray has to start the actor's process
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True)
class Entry:
    """What the cluster knows about a sender."""

    endpoint: str
    boot: str  # boot id of the sender's host
    folder: tuple[int, int] | None  # device and inode; None: the endpoint has no folder
    node: str  # Ray's id
    address: str  # IP address of that node
    gpu: str  # UUID of the sender's GPU ("GPU-…"); empty: none
    process: int


class Sender(sender.Sender):
    """A bascule.Sender that processes of the cluster find by `name`, until it is closed or its process ends.

    endpoint: by default a private folder per name, for engines on this host, with scheme "auto" if Ray gave this
    process a GPU, else "shm". For engines on other hosts give "auto:///folder?listen=host:port". namespace: the Ray
    namespace of the name; by default the job's. timeout: how many seconds to wait while another sender, at another
    endpoint, holds the name. options: passed to bascule.Sender. With sharded=True, all ranks are on one host and give the
    same name; rank 0 holds it, and the default endpoint has the scheme "shm".

    The constructor blocks until Ray has started the actor that holds the name. If Ray restarts a trainer's actor on the
    same node, the new sender gets the same name and endpoint, and its engines reconnect.

    Raises BasculeError: ALREADY_EXISTS if another sender has the name; INVALID_ARGUMENT; FAILED_PRECONDITION if the
    process is not connected to a cluster; BasculeTimeoutError if Ray does not start the actor within a minute.
    """

    _holder: Any = None

    def __init__(self, name: str, endpoint: str = "", *, namespace: str | None = None, timeout: float = 10,
                 **options: Any):
        _check(name, timeout)
        sharded = bool(options.get("sharded"))
        super().__init__(endpoint or _endpoint_of(name, namespace, on_host=sharded), **options)
        if sharded and rank_and_ranks()[0] > 0:
            return
        try:
            self._holder = _publish(name, _entry_of(self._endpoint), namespace, timeout)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes like bascule.Sender.close(), and frees the name."""
        super().close()
        holder, self._holder = self._holder, None
        if holder is None or not ray.is_initialized():
            return
        try:
            ray.kill(holder)
        except ValueError:  # it belonged to a cluster to which this process was connected before
            pass


class Receiver(receiver.Receiver):
    """A bascule.Receiver for the sender with this name. The constructor blocks until that sender exists.

    worker: by default this actor's name, or its id if it has no name, so that a restarted actor keeps its worker name.
    device: the device that reads; by default the sender's GPU if this process sees that GPU, else the first GPU that
    Ray gave this process, else "cpu". options: passed to bascule.Receiver.

    Raises BasculeTimeoutError after `timeout` seconds, and lists the names that exist; BasculeError:
    FAILED_PRECONDITION if the sender's endpoint cannot be reached from this host, or the process is not connected to a
    cluster.
    """

    def __init__(self, name: str, *, worker: str = "", device: Any = None, namespace: str | None = None,
                 timeout: float = 60, **options: Any):
        entry = _find(name, namespace, timeout)
        super().__init__(_endpoint_for(name, entry), worker=worker or _own_name(),
                         device=_device_near(entry.gpu) if device is None else device, **options)


def find(name: str, *, namespace: str | None = None, timeout: float = 60) -> str:
    """Returns the sender's endpoint, for an engine on this host that uses no bascule.ray.Receiver: bascule.hf.follow()
    or vLLM (BASCULE_ENDPOINT). Blocks and raises like Receiver."""
    return _endpoint_for(name, _find(name, namespace, timeout))


def beside(name: str, *, namespace: str | None = None, timeout: float = 60) -> dict[str, Any]:
    """Returns Ray options that place an actor or a task on the sender's node, where it sees only the sender's GPU (by
    UUID): Engine.options(num_gpus=0.3, **beside("grpo")). Blocks and raises like Receiver.

    On a node with several GPUs, Ray may book the fraction (0.3) on a different GPU. If the options have a
    "runtime_env", merge its "env_vars" with your own.
    """
    entry = _find(name, namespace, timeout)
    options: dict[str, Any] = {"scheduling_strategy": NodeAffinitySchedulingStrategy(entry.node, soft=False)}
    if entry.gpu:
        options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": entry.gpu,
                                               "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    return options


# ---- names


@ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=64)
class _Holder:
    """An actor that the sender's process owns: it ends with that process, which frees the name."""

    def __init__(self, entry: Entry):
        self._entry = entry

    def entry(self) -> Entry:
        return self._entry


def _check(name: str, timeout: float) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BasculeError("name: expected up to 40 letters, digits, '.', '_' and '-', the first one a letter or a digit, "
                           f"found {name!r}", "INVALID_ARGUMENT")
    if not timeout >= 0:
        raise BasculeError(f"timeout: expected seconds, 0 or more, found {timeout}", "INVALID_ARGUMENT")
    if not ray.is_initialized():
        raise BasculeError("this process is not connected to a Ray cluster; call ray.init() first",
                           "FAILED_PRECONDITION")
    if ray.util.client.ray.is_connected():
        raise BasculeError("this process is a client of Ray (ray://…), which is not part of the cluster; make senders and "
                           "receivers in actors or tasks", "FAILED_PRECONDITION")


def _publish(name: str, entry: Entry, namespace: str | None, timeout: float) -> Any:
    beside_sender = NodeAffinitySchedulingStrategy(entry.node, soft=False)
    deadline = time.monotonic() + timeout
    while True:
        try:
            holder = _Holder.options(name=_PREFIX + name, namespace=namespace,
                                     scheduling_strategy=beside_sender).remote(entry)
            break
        except ray.exceptions.ActorAlreadyExistsError:  # maybe by a sender that is about to end
            if time.monotonic() > deadline:
                other = _look(name, namespace)
                by = f", process {other.process} at {other.address}, {other.endpoint}" if other else ""
                raise BasculeError(f"another sender has the name {name!r} in this cluster{by}; close it, or take "
                                   "another name", "ALREADY_EXISTS") from None
        time.sleep(_LOOK_EVERY)
    try:
        ray.get(holder.entry.remote(), timeout=_HOLDER_STARTS)
    except ray.exceptions.GetTimeoutError:
        ray.kill(holder)
        raise BasculeTimeoutError(f"Ray did not start the actor that holds the name {name!r} within {_HOLDER_STARTS} "
                                  "seconds", "DEADLINE_EXCEEDED") from None
    return holder


def _look(name: str, namespace: str | None, patience: float = 5) -> Entry | None:
    try:
        return ray.get(ray.get_actor(_PREFIX + name, namespace).entry.remote(), timeout=patience)
    except (ValueError, ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return None  # there is none, or it has just ended


def _find(name: str, namespace: str | None, timeout: float) -> Entry:
    _check(name, timeout)
    deadline = time.monotonic() + timeout
    while (entry := _look(name, namespace)) is None:
        if time.monotonic() > deadline:
            namespace = namespace or ray.get_runtime_context().namespace
            named = sorted(each["name"].removeprefix(_PREFIX) for each in ray.util.list_named_actors(True)
                           if each["namespace"] == namespace and each["name"].startswith(_PREFIX))
            raise BasculeTimeoutError(
                f"no sender had the name {name!r} in Ray's namespace {namespace} within {timeout} seconds; there are: "
                f"{', '.join(named) or 'none'}", "DEADLINE_EXCEEDED")
        time.sleep(_LOOK_EVERY)
    return entry


# ---- hosts


def _endpoint_of(name: str, namespace: str | None, on_host: bool) -> str:
    """Returns the same endpoint each time for a name, so that a restarted trainer gets its previous one, and each rank the
    same one. on_host: in host memory even if this process has a GPU."""
    context = ray.get_runtime_context()
    of_name = hashlib.sha256(f"{context.gcs_address}/{namespace or context.namespace}/{name}".encode()).hexdigest()[:16]
    return _core.endpoint_for_any_engine(gpu=not on_host and bool(context.get_accelerator_ids().get("GPU")),
                                         folder=quote(str(_own_folder() / f"ray-{of_name}")))


def _own_folder() -> Path:
    """A folder that only this user can write, unlike /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "bascule" if runtime and os.path.isdir(runtime) else Path(
        tempfile.gettempdir(), f"bascule-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise BasculeError(f"the folder of endpoints: {error}; give the sender an endpoint", "PERMISSION_DENIED") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise BasculeError(f"{folder}: expected a folder of user {os.getuid()} that no other user can write, found one "
                           f"of user {found.st_uid} with mode {stat.filemode(found.st_mode)}; remove it, or give the "
                           "sender an endpoint", "PERMISSION_DENIED")
    return folder


def _entry_of(endpoint: str) -> Entry:
    context = ray.get_runtime_context()
    path = unquote(urlsplit(endpoint).path)
    return Entry(endpoint, _boot(), _identity(path) if path else None, context.get_node_id(),
                 ray.util.get_node_ip_address(), next(iter(_gpus()), ""), os.getpid())


def _endpoint_for(name: str, entry: Entry) -> str:
    return _reachable(f"the sender {name!r}", entry, f"place the engine there (**bascule.ray.beside({name!r}))")


def _reachable(who: str, entry: Entry, remedy: str) -> str:
    """Returns the endpoint by which an engine on this host reaches the sender of `entry`. who, remedy: for the error."""
    url = urlsplit(entry.endpoint)
    if not url.path:  # a host and a port
        return entry.endpoint
    here = _identity(unquote(url.path)) if entry.boot == _boot() else None
    if here is not None and here == entry.folder:
        return entry.endpoint
    options = [option.partition("=") for option in url.query.split("&")]
    if listen := [unquote(value) for key, _, value in options if key == "listen"]:
        host, _, port = listen[0].rpartition(":")
        host = entry.address if host in ("", "0.0.0.0", "[::]") else host
        # Options that each end reads are copied from the sender's URL; the others apply to the sender alone.
        shared = "&".join("".join(option) for option in options if option[0] in _OF_BOTH_ENDS)
        return f"{url.scheme}://{host}:{port}{'?' if shared else ''}{shared}"
    raise BasculeError(
        f"{who} is at {entry.endpoint} on {entry.address}, a folder that this process on {ray.util.get_node_ip_address()} does "
        f"not see (another host or container, or it was removed); {remedy}, or give the sender an endpoint for other hosts "
        "(as auto:///folder?listen=host:port)", "FAILED_PRECONDITION")


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _identity(folder: str) -> tuple[int, int] | None:
    """Device and inode. They are equal if two processes see one folder, even if each has its own root."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _own_name() -> str:
    context = ray.get_runtime_context()
    if actor := context.get_actor_id():
        return context.get_actor_name() or f"actor-{actor}"
    return f"{socket.gethostname()}-{os.getpid()}"


# ---- GPUs


def _gpus() -> list[str]:
    """UUIDs of the GPUs that Ray, or beside(), gave this process, in CUDA's order."""
    given = ray.get_runtime_context().get_accelerator_ids().get("GPU")
    if not given and not os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("GPU-"):
        return []
    import torch

    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(torch.cuda.device_count())]


def _device_near(gpu: str) -> str:
    found = _gpus()
    if not found:
        return "cpu"
    return f"cuda:{found.index(gpu) if gpu in found else 0}"
