"""Trainers and engines in Ray actors, which find each other by a name; some of them are killed."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import bascule
import bascule.ray

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine
os.environ["RAY_worker_niceness"] = "0"  # else Ray's workers starve during a build
EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "ray_grpo.py"


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Two nodes, which are two raylets on this machine."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "resources": {"first": 4}})
    cluster.add_node(num_cpus=4, resources={"second": 4})
    ray.init(address=cluster.address, log_to_driver=False, namespace="tests")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@ray.remote(max_restarts=-1)
class Trainer:
    def __init__(self, name, endpoint="", timeout=10):
        self.sender = bascule.ray.Sender(name, endpoint, timeout=timeout)
        self.weight = np.zeros(1000, np.float32)
        self.sender.register_model({"weight": self.weight})

    def workers(self, count):
        return self.sender.wait_for_workers(count, PATIENCE)

    def send(self, value):
        """The version, and whether each worker serves it."""
        self.weight[:] = value
        report = self.sender.send()
        return report.version, {worker.worker: worker.error is None for worker in report.workers}

    def close(self):
        self.sender.close()

    def where(self):
        return ray.get_runtime_context().get_node_id(), os.getpid()


@ray.remote(max_restarts=-1)
class Engine:
    """It follows in a separate thread, like an engine between two tokens."""

    def __init__(self, name, **options):
        self.receiver = bascule.ray.Receiver(name, timeout=PATIENCE, **options)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        while True:
            self.receiver.commit()
            time.sleep(0.001)

    def serves(self):
        """The version, and all values of its tensor."""
        weights = self.receiver.weights()
        return self.receiver.status().version, {float(value) for value in np.asarray(weights["weight"])}

    def where(self):
        return ray.get_runtime_context().get_node_id(), os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.fixture
def start():
    """start(Class, *arguments, options=…) starts an actor with these options, which is killed at the end."""
    started = []

    def start(actor, *arguments, options=None, **named):
        started.append(actor.options(**(options or {})).remote(*arguments, **named))
        return started[-1]

    yield start
    for actor in started:
        ray.kill(actor)


@pytest.fixture
def name(request):
    return request.node.name[:40]


def get(future):
    return ray.get(future, timeout=PATIENCE)


def settled(look):
    """The first true result of look(). Errors are ignored: an actor that is restarting fails meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if found := look():
                return found
        except ray.exceptions.RayActorError:
            pass
        assert time.monotonic() < deadline, "it did not settle"
        time.sleep(0.1)


def test_engines_find_the_trainer_that_comes_later(start, name):
    engines = [start(Engine, name, options={"name": f"{name}-{i}"}) for i in range(2)]
    trainer = start(Trainer, name)
    assert sorted(get(trainer.workers.remote(2))) == [f"{name}-0", f"{name}-1"]
    for value in (1, 2, 3):
        version, workers = get(trainer.send.remote(value))
        assert workers == {f"{name}-0": True, f"{name}-1": True}
        assert [get(engine.serves.remote()) for engine in engines] == 2 * [(version, {value})]


def test_a_placement_group_keeps_a_trainer_and_engines_with_fractions_on_one_node(start, name):
    group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_PACK")
    get(group.ready())

    def in_bundle(number, cpus, **options):
        return {**options, "num_cpus": cpus, "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=number)}

    try:
        trainer = start(Trainer, name, options=in_bundle(0, 1))
        engines = [start(Engine, name, options=in_bundle(1, 0.5, name=f"{name}-{i}")) for i in range(2)]
        get(trainer.workers.remote(2))
        version, _ = get(trainer.send.remote(7))
        assert [get(engine.serves.remote()) for engine in engines] == 2 * [(version, {7})]
        assert len({get(each.where.remote())[0] for each in (trainer, *engines)}) == 1
        with pytest.raises(ray.exceptions.GetTimeoutError):  # the second bundle is full
            ray.get(start(Engine, name, options=in_bundle(1, 0.5)).where.remote(), timeout=2)
    finally:
        remove_placement_group(group)


def test_an_engine_without_a_name_is_known_by_its_actors_id(start, name):
    trainer = start(Trainer, name)
    engine = start(Engine, name)
    assert get(trainer.workers.remote(1)) == [f"actor-{engine._actor_id.hex()}"]


def test_an_engine_that_was_killed_comes_back_in_its_place(start, name):
    trainer = start(Trainer, name)
    engines = [start(Engine, name, options={"name": f"{name}-{i}"}) for i in range(2)]
    get(trainer.workers.remote(2))
    get(trainer.send.remote(1))
    before = get(engines[0].where.remote())[1]
    ray.kill(engines[0], no_restart=False)
    version, workers = get(trainer.send.remote(2))
    assert workers[f"{name}-1"]  # whether or not the other one's death has been noticed
    assert settled(lambda: get(engines[0].where.remote()))[1] != before
    version, workers = settled(lambda: (sent := get(trainer.send.remote(3)))[1].get(f"{name}-0") and sent)
    assert workers == {f"{name}-0": True, f"{name}-1": True}
    assert get(engines[0].serves.remote()) == (version, {3})


def test_a_trainer_that_was_killed_takes_its_name_and_its_engines_again(start, name):
    trainer = start(Trainer, name)
    engine = start(Engine, name, options={"name": f"{name}-0"})
    get(trainer.workers.remote(1))
    before, _ = get(trainer.send.remote(1))
    process = get(trainer.where.remote())[1]
    ray.kill(trainer, no_restart=False)
    assert get(engine.serves.remote()) == (before, {1})  # while there is no sender
    assert settled(lambda: get(trainer.where.remote()))[1] != process
    assert get(trainer.workers.remote(1)) == [f"{name}-0"]
    version, workers = get(trainer.send.remote(2))
    assert version > before and workers == {f"{name}-0": True}
    assert get(engine.serves.remote()) == (version, {2})


def test_a_name_that_is_not_there(start, name):
    start(Trainer, "another")
    bascule.ray.find("another")
    begun = time.monotonic()
    with pytest.raises(bascule.BasculeTimeoutError, match=f"no sender had the name '{name}' in Ray's namespace tests "
                                                          "within 1 seconds; there are: another"):
        bascule.ray.Receiver(name, timeout=1)
    assert time.monotonic() - begun < 10


def test_a_name_that_is_taken(start, name, tmp_path):
    trainer = start(Trainer, name)
    process = get(trainer.where.remote())[1]
    get(trainer.send.remote(1))
    with pytest.raises(bascule.BasculeError, match=f"another sender has the name '{name}' .* process {process} ") as error:
        bascule.ray.Sender(name, f"shm://{tmp_path}/other", timeout=0.5)
    assert error.value.code == "ALREADY_EXISTS"
    with pytest.raises(bascule.BasculeError) as error:  # the endpoint that belongs to the name
        bascule.ray.Sender(name)
    assert error.value.code == "ALREADY_EXISTS"


def test_a_sender_that_is_closed_has_no_name(start, name):
    trainer = start(Trainer, name)
    assert bascule.ray.find(name).startswith("shm:///")
    get(trainer.close.remote())
    with pytest.raises(bascule.BasculeTimeoutError):
        bascule.ray.find(name, timeout=0)
    with bascule.ray.Sender(name):  # in the driver
        bascule.ray.find(name, timeout=0)


@pytest.mark.parametrize("node", ["first", "second"])
def test_beside_the_sender(start, name, node):
    name = name.replace("[", "-").replace("]", "")
    trainer = start(Trainer, name, options={"resources": {node: 1}})
    engine = start(Engine, name, options=bascule.ray.beside(name))
    assert get(engine.where.remote())[0] == get(trainer.where.remote())[0]


def test_beside_gives_a_gpu_by_its_uuid(start, name, monkeypatch):
    start(Trainer, name)
    entry = bascule.ray._find(name, None, PATIENCE)
    monkeypatch.setattr(bascule.ray, "_find", lambda *_: bascule.ray.Entry(**{**vars(entry), "gpu": "GPU-1-2"}))
    options = bascule.ray.beside(name)
    monkeypatch.undo()
    assert get(start(Engine, name, device="cpu", options=options).where.remote())[2] == "GPU-1-2"


def test_an_endpoint_of_another_host(name, tmp_path):
    def entry(endpoint):
        return bascule.ray.Entry(endpoint, "its boot", (1, 2), "its node", "10.0.0.7", "", 1)

    with pytest.raises(bascule.BasculeError, match="a folder that this process .* does not see .*; .*beside") as error:
        bascule.ray._endpoint_for(name, entry(f"shm://{tmp_path}"))
    assert error.value.code == "FAILED_PRECONDITION"
    for listen, host in (("node1:29500", "node1:29500"), ("0.0.0.0:29500", "10.0.0.7:29500")):
        assert bascule.ray._endpoint_for(name, entry(f"auto://{tmp_path}?listen={listen}")) == f"auto://{host}"
    assert bascule.ray._endpoint_for(name, entry("auto:///a?token_file=/t&listen=b:1")) == "auto://b:1?token_file=/t"
    assert bascule.ray._endpoint_for(name, entry("auto:///a?slots=3&flip_timeout=9s&listen=b:1")) == "auto://b:1?flip_timeout=9s"
    assert bascule.ray._endpoint_for(name, entry("nccl://node1:29500")) == "nccl://node1:29500"


def test_an_endpoint_with_a_blank_in_its_folder(name, tmp_path):
    with bascule.ray.Sender(name, f"shm://{tmp_path}/a%20folder"):
        assert bascule.ray.find(name) == f"shm://{tmp_path}/a%20folder"
        assert (tmp_path / "a folder").is_dir()


def test_the_folder_of_endpoints_is_this_users_or_refused(name, tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"bascule-{os.getuid()}"
    for make in (lambda: folder.mkdir(mode=0o777), lambda: folder.symlink_to("/tmp"), folder.touch):
        make()
        if folder.is_dir():
            folder.chmod(0o777)
        with pytest.raises(bascule.BasculeError) as error:
            bascule.ray.Sender(name)
        assert error.value.code == "PERMISSION_DENIED" and str(folder) in str(error.value)
        folder.rmdir() if folder.is_dir() and not folder.is_symlink() else folder.unlink()
    with bascule.ray.Sender(name):
        assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with bascule.ray.Sender(name):
        assert bascule.ray.find(name).startswith(f"shm://{tmp_path}/bascule/ray-")


def test_a_name_whose_holder_was_killed_is_found_again(start, name):
    trainer = start(Trainer, name)
    get(trainer.send.remote(1))
    ray.kill(ray.get_actor(f"bascule:{name}"), no_restart=False)
    assert bascule.ray.find(name, timeout=PATIENCE)


def test_a_sender_that_outlives_its_cluster_can_be_closed():
    outlives = """if True:
        import ray, bascule.ray
        ray.init(num_cpus=1, log_to_driver=False)
        sender = bascule.ray.Sender("outlives")
        ray.shutdown()
        ray.init(num_cpus=1, log_to_driver=False)
        sender.close()
        print("closed")
        """
    ended = subprocess.run([sys.executable, "-c", outlives], capture_output=True, text=True, timeout=2 * PATIENCE,
                           env={**os.environ, "RAY_ADDRESS": "local"})
    assert ended.stdout == "closed\n", ended.stderr


def test_ends_do_not_travel(start, name):
    with bascule.ray.Sender(name) as sender:
        with pytest.raises(Exception, match="cannot be copied or pickled"):
            start(Engine, sender)


def test_names_that_cannot_be():
    for bad in ("", "a/b", "..", "-a", "x" * 41, None):
        with pytest.raises(bascule.BasculeError, match="name: expected"):
            bascule.ray.Sender(bad)
    for timeout in (float("nan"), -1):
        with pytest.raises(bascule.BasculeError, match="timeout: expected seconds"):
            bascule.ray.find("a", timeout=timeout)


def test_without_a_cluster():
    without = "import bascule.ray; bascule.ray.Sender('a')"
    ended = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, timeout=PATIENCE)
    assert "not connected to a Ray cluster; call ray.init() first" in ended.stderr


def test_the_example():
    ended = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=3 * PATIENCE,
                           env={**os.environ, "RAY_ADDRESS": "local"})  # starts its own cluster
    assert ended.returncode == 0, ended.stderr
    shares = [float(line.split()[-1].rstrip("%")) for line in ended.stdout.splitlines() if line.startswith("step")]
    assert shares[0] < 20 and shares[-1] > 80, ended.stdout


@ray.remote
class Rank:
    """One rank of a sharded trainer: it has some rows of the one tensor."""

    def __init__(self, name, rank, store):
        from torch import distributed
        from torch.distributed.tensor import Shard, zeros

        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        self.weight = zeros(1001, device_mesh=distributed.init_device_mesh("cpu", (2,)), placements=[Shard(0)])
        self.sender = bascule.ray.Sender(name, sharded=True)
        self.sender.register_model({"weight": self.weight}, timeout=PATIENCE)

    def workers(self, count):
        return self.sender.wait_for_workers(count, PATIENCE)

    def send(self, step):
        self.weight.to_local().fill_(step)
        report = self.sender.send(step=step)
        return report.version, report.complete


def test_the_ranks_of_a_sharded_trainer_give_one_name_and_engines_find_it(start, name, tmp_path):
    ranks = [start(Rank, name, rank, tmp_path / "store") for rank in range(2)]
    engine = start(Engine, name, options={"name": "e"})
    assert get(ranks[0].workers.remote(1)) == ["e"]
    for step in (1, 2):
        assert ray.get([rank.send.remote(step) for rank in ranks], timeout=PATIENCE) == [(step, True)] * 2
        assert get(engine.serves.remote()) == (step, {float(step)})
