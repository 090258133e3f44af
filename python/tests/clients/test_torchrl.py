"""TorchRL's collectors with the backend "bascule": the rollouts show which weights their policies had. Also compares
TorchRL's double buffer with its replacement."""

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import types

import pytest
import torch

pytest.importorskip("torchrl")
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector
from torchrl.data import Composite, Unbounded
from torchrl.envs import EnvBase
from torchrl.weight_update import WeightSyncScheme
from torchrl.weight_update.llm.vllm_double_buffer import VLLMDoubleBufferSyncScheme

import bascule
import bascule.torchrl.collectors
from bascule.torchrl import SyncScheme

PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine
FRAMES = 8  # per batch, from all workers


class Env(EnvBase):
    """Its steps show which worker made them."""

    def __init__(self, worker=0):
        super().__init__(device="cpu", batch_size=[])
        self.worker = worker
        self.observation_spec = Composite(observation=Unbounded(1))
        self.action_spec = Unbounded(2)
        self.reward_spec = Unbounded(1)

    def _reset(self, tensordict=None):
        return TensorDict({"observation": torch.full((1,), float(self.worker))}, [])

    def _step(self, tensordict):
        return TensorDict({"observation": torch.full((1,), float(self.worker)), "reward": torch.zeros(1),
                           "done": torch.zeros(1, dtype=torch.bool)}, [])

    def _set_seed(self, seed):
        pass


def first(*arguments):
    return Env(0)


def second(*arguments):
    return Env(1)


def broken():
    raise ValueError("this environment does not start")


class Says(torch.nn.Module):
    """Its action is the minimum and maximum of all its tensors' elements."""

    def __init__(self, value=0.0):
        super().__init__()
        self.layer = torch.nn.Linear(300, 300)
        self.small = torch.nn.Linear(3, 5, dtype=torch.bfloat16)
        self.register_buffer("table", torch.zeros(7))
        self.register_buffer("scratch", torch.zeros(7), persistent=False)
        set_all(self, value)

    def forward(self, observation):
        low = min(tensor.min().float() for tensor in tensors_of(self))
        high = max(tensor.max().float() for tensor in tensors_of(self))
        return torch.stack([low, high])


def tensors_of(model):
    return [*model.parameters(), *model.buffers()]


@torch.no_grad()
def set_all(model, value):
    for tensor in tensors_of(model):
        tensor.fill_(value)


def make_policy(value=0.0):
    return TensorDictModule(Says(value), in_keys=["observation"], out_keys=["action"])


def a_policy():
    return make_policy(-1.0)


@pytest.fixture
def schemes():
    """The schemes that a test made; they are shut down after their collectors."""
    made = []
    yield made
    for scheme in made:
        scheme.shutdown()


@pytest.fixture
def collect(endpoint, schemes):
    """collect(kind, policy, …) makes a collector with two workers, and its scheme."""
    made = []

    def make(kind=MultiSyncCollector, policy=None, envs=(first, second), options="", **more):
        scheme = WeightSyncScheme.from_backend("bascule", endpoint=endpoint + options, timeout=PATIENCE)
        schemes.append(scheme)
        collector = kind(list(envs), policy, frames_per_batch=FRAMES, total_frames=-1,
                         weight_sync_schemes={"policy": scheme}, **more)
        made.append(collector)
        return collector

    yield make
    for collector in made:
        collector.shutdown()


def within_patience(call, *arguments, **named):
    """The call's result or exception. A test that would wait for ever fails."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(call, *arguments, **named).result(PATIENCE)


def weights_in(batch):
    """By worker, the weights that its policy had at each step; they are the same in all tensors."""
    found = {}
    actions, workers = batch["action"].reshape(-1, 2), batch["observation"].reshape(-1)
    for (low, high), worker in zip(actions.tolist(), workers.tolist()):
        assert low == high, "a policy was called with tensors of two versions"
        found.setdefault(int(worker), set()).add(low)
    return found


def test_after_each_update_both_workers_have_the_trainers_weights(collect):
    policy = make_policy(1)
    collector = collect(policy=policy, cat_results=0)
    batches = iter(collector)
    assert weights_in(next(batches)) == {0: {1}, 1: {1}}
    for value in (2, 3, 4, 5):
        set_all(policy, value)
        collector.update_policy_weights_()
        assert weights_in(next(batches)) == {0: {value}, 1: {value}}


def test_weights_may_be_given_and_for_one_worker(collect):
    collector = collect(policy=make_policy(1), cat_results=0)
    batches = iter(collector)
    for value, form in ((2, lambda policy: policy), (3, lambda policy: TensorDict.from_module(policy).data),
                        (4, lambda policy: TensorDict.from_module(policy).data.flatten_keys(".").to_dict())):
        collector.update_policy_weights_(form(make_policy(value)))
        assert weights_in(next(batches)) == {0: {value}, 1: {value}}
    collector.update_policy_weights_(make_policy(5), worker_ids=[1])
    assert weights_in(next(batches)) == {0: {4}, 1: {5}}
    collector.update_policy_weights_()
    assert weights_in(next(batches)) == {0: {1}, 1: {1}}


def test_weights_of_other_names_or_shapes_are_refused_and_nothing_changes(collect):
    collector = collect(policy=make_policy(1), cat_results=0)
    good = TensorDict.from_module(make_policy(2)).data
    for wrong, text in ((good.exclude(("module", "table")), "tensor module.table of the registered model is not among"),
                        (good.clone(False).set(("module", "more"), torch.zeros(1)), "tensor module.more of the"),
                        (good.clone(False).set(("module", "table"), torch.zeros(6)), "module.table"),
                        ({0: good, 1: good}, "found weights by worker")):
        with pytest.raises(bascule.BasculeError, match=text):
            collector.update_policy_weights_(wrong)
    with pytest.raises(bascule.BasculeError, match="worker_ids: expected numbers below 2, found 2"):
        collector.update_policy_weights_(worker_ids=[2])
    assert weights_in(next(iter(collector))) == {0: {1}, 1: {1}}


def test_policies_of_a_factory_get_the_trainers_weights(collect):
    policy = make_policy(1)
    collector = collect(policy=policy, policy_factory=a_policy, cat_results=0)
    batches = iter(collector)
    assert weights_in(next(batches)) == {0: {1}, 1: {1}}
    set_all(policy, 2)
    collector.update_policy_weights_()
    assert weights_in(next(batches)) == {0: {2}, 1: {2}}


class Keeps(TensorDictModule):
    """A policy with state besides its tensors, which it shows."""

    def __init__(self):
        super().__init__(Says(0), in_keys=["observation"], out_keys=["action"])
        self.kept = torch.zeros(1)

    def get_extra_state(self):
        return {"kept": self.kept}

    def set_extra_state(self, state):
        self.kept = state["kept"]

    def forward(self, tensordict, *arguments, **named):
        tensordict = super().forward(tensordict, *arguments, **named)
        return tensordict.set("action", tensordict["action"] + self.kept)


def test_what_a_policy_keeps_beside_its_tensors_comes_too(collect):
    policy = Keeps()
    collector = collect(policy=policy, cat_results=0)
    batches = iter(collector)
    assert weights_in(next(batches)) == {0: {0}, 1: {0}}
    policy.kept = torch.full((1,), 5.0)
    collector.update_policy_weights_()
    assert weights_in(next(batches)) == {0: {5}, 1: {5}}
    collector.update_policy_weights_(TensorDict.from_module(policy).data + 1)  # which has no extra state
    assert weights_in(next(batches)) == {0: {6}, 1: {6}}


def test_a_policy_is_never_of_two_versions_while_workers_run_on(collect):
    policy = make_policy(1)
    collector = collect(MultiAsyncCollector, policy)
    batches = iter(collector)
    seen = {0: [], 1: []}
    for value in range(2, 40):
        set_all(policy, value)
        collector.update_policy_weights_()
        for worker, values in weights_in(next(batches)).items():
            seen[worker] += sorted(values)
    for _ in range(8):  # batches that began before the last update
        for worker, values in weights_in(next(batches)).items():
            seen[worker] += sorted(values)
    assert all(values == sorted(values) and values[-1] == 39 for values in seen.values())


def test_a_killed_worker_fails_the_update_which_names_it(collect):
    policy = make_policy(1)
    collector = collect(policy=policy)
    killed = collector.procs[1]
    killed.kill()
    killed.join(PATIENCE)
    for _ in range(2):
        with pytest.raises(bascule.BasculeError, match=rf"worker-1 \(process {killed.pid}\) has ended .* code -9"):
            within_patience(collector.update_policy_weights_)
    within_patience(collector.update_policy_weights_, worker_ids=0)
    with pytest.raises(bascule.BasculeError, match="no worker is left to get the weights: worker-1 "):
        within_patience(collector.update_policy_weights_, worker_ids=[1])


def test_a_worker_that_stands_still_fails_the_update_and_comes_back(collect, schemes):
    policy = make_policy(1)
    collector = collect(policy=policy, options="?timeout=1s&flip_timeout=1s", cat_results=0)
    stopped = collector.procs[1]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        set_all(policy, 2)
        with pytest.raises(bascule.BasculeError, match="did not come to all: .*worker-1"):
            within_patience(collector.update_policy_weights_)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    schemes[0].sender.wait_for_workers(2, PATIENCE)
    set_all(policy, 3)
    within_patience(collector.update_policy_weights_)
    assert weights_in(next(iter(collector))) == {0: {3}, 1: {3}}


def test_a_worker_that_does_not_start_raises_its_own_error(collect):
    with pytest.raises(ValueError, match="this environment does not start"):
        within_patience(collect, policy=make_policy(1), envs=(first, broken))


def test_a_collector_in_the_trainers_process_is_refused(endpoint):
    scheme = WeightSyncScheme.from_backend("bascule", endpoint=endpoint)
    with pytest.raises(bascule.BasculeError, match="a collector in the trainer's process needs no scheme"):
        Collector(first, make_policy(1), frames_per_batch=FRAMES, total_frames=-1,
                  weight_sync_schemes={"policy": scheme})


def test_only_endpoint_and_options_of_a_scheme_in_use_travel(collect, schemes):
    collect(policy=make_policy(1))
    scheme = schemes[0]
    assert scheme.sender is not None
    copy = pickle.loads(pickle.dumps(scheme))
    assert (copy.endpoint, copy.timeout) == (scheme.endpoint, scheme.timeout)
    assert copy.sender is None


def _collect_alone(endpoint, batches, answers):
    scheme = WeightSyncScheme.from_backend("bascule", endpoint=endpoint, timeout=PATIENCE)
    collector = Collector(first, make_policy(0), frames_per_batch=FRAMES, total_frames=-1)
    collector.register_scheme_receiver({"policy": scheme})
    rollouts = iter(collector)
    for _ in iter(batches.get, None):
        answers.put(weights_in(next(rollouts)))
    scheme.shutdown()
    collector.shutdown()


def test_a_collector_of_one_process_follows_the_sender_of_another(endpoint):
    spawn = multiprocessing.get_context("spawn")
    batches, answers = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=_collect_alone, args=(endpoint, batches, answers))
    process.start()
    policy = make_policy(0)
    tensors = dict(TensorDict.from_module(policy).flatten_keys(".").items())
    with bascule.Sender(endpoint) as sender:
        sender.register_model(tensors, rename=None)
        sender.wait_for_workers(1, PATIENCE)
        for value in (1, 2, 3):
            set_all(policy, value)
            assert sender.send().complete
            batches.put("one")
            assert answers.get(timeout=PATIENCE) == {0: {value}}
        batches.put(None)
        process.join(PATIENCE)
        assert process.exitcode == 0


# ---- TorchRL's double buffer, and its replacement


class Engine:
    """The part of vLLM's LLM that both receivers use: a model with load_weights(), which copies each tensor in turn.

    between: called once, after the first tensor.
    """

    def __init__(self, between=lambda: None):
        self.model = Says(0)
        self._places, self._between = dict(self.model.named_parameters()) | dict(self.model.named_buffers()), between
        runner = types.SimpleNamespace(model=self)
        self.model_executor = types.SimpleNamespace(driver_worker=types.SimpleNamespace(model_runner=runner))

    @torch.no_grad()
    def load_weights(self, pairs):
        for name, tensor in sorted(pairs):
            self._places[name].copy_(tensor)
            between, self._between = self._between, lambda: None
            between()

    def values(self):
        places = self._places.values()
        return sorted({each(tensor).item() for tensor in places for each in (torch.min, torch.max)})


def bytes_of(model):
    tensors = model.state_dict().items()
    return {name: tensor.contiguous().view(torch.uint8).numpy().tobytes() for name, tensor in tensors}


def scheme_of(kind, place):
    if kind == "bascule":
        return SyncScheme(f"shm://{place}/endpoint?load_timeout=1s", timeout=PATIENCE)
    return VLLMDoubleBufferSyncScheme(remote_addr=f"{place}/buffer", strategy="state_dict")


def _engine(kind, place, questions, answers):
    """poll: loads the present or the next version. wait: the same, but waits after the first tensor for the command to
    continue. again: returns whether there was more to load."""
    def wait():
        answers.put("waits")
        assert questions.get(timeout=PATIENCE) == "go on"

    engine = Engine()
    receiver = scheme_of(kind, place).create_receiver(engine)
    answers.put("ready")
    for question in iter(lambda: questions.get(timeout=PATIENCE), None):
        if question == "again":
            answers.put(receiver.poll_and_apply(timeout=0))
            continue
        if question == "wait":
            engine._between = wait
        assert receiver.poll_and_apply(timeout=PATIENCE)
        answers.put((engine.values(), bytes_of(engine.model)))


@pytest.fixture(params=["bascule", "double buffer"])
def pair(request, tmp_path):
    """The kind, a sender with its model, and ask() of an engine in another process."""
    spawn = multiprocessing.get_context("spawn")
    questions, answers = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=_engine, args=(request.param, tmp_path, questions, answers))
    process.start()
    assert answers.get(timeout=PATIENCE) == "ready"
    model = Says(0)
    sender = scheme_of(request.param, tmp_path).create_sender()
    sender.register_model(model)

    def ask(question):
        questions.put(question)
        return answers.get(timeout=PATIENCE)

    yield request.param, model, sender, ask
    questions.put(None)
    process.join(PATIENCE)
    if request.param == "bascule":
        sender.close()


def test_the_same_bytes_lie_in_the_tensors_of_the_engine(pair):
    _, model, sender, ask = pair
    torch.manual_seed(0)
    for _ in range(3):
        with torch.no_grad():
            for tensor in tensors_of(model):
                tensor.copy_(torch.randn(tensor.shape))
        sender.update_weights()
        _, found = ask("poll")
        assert found == bytes_of(model)


def test_what_is_written_while_an_engine_loads_is_not_mixed_in(pair):
    """The double buffer writes into the files that its reader has mapped. Bascule's slot is the engine's until it takes
    another: further versions go elsewhere, even after the trainer stopped waiting for this engine (load_timeout)."""
    kind, model, sender, ask = pair
    set_all(model, 1)
    sender.update_weights()
    assert ask("wait") == "waits"
    for value in (2, 3):
        set_all(model, value)
        sender.update_weights()
    values, _ = ask("go on")
    if kind == "bascule":
        assert values == [0, 1]  # 0: a buffer that is not sent
        assert any(ask("poll")[0] == [0, 3] for _ in range(2))  # the version between them may come first
    else:
        assert values == [0, 1, 3]


def test_a_reader_knows_whether_there_are_new_weights(pair):
    """The double buffer's does not: it reports that it applied weights, whatever the folder holds."""
    kind, model, sender, ask = pair
    set_all(model, 1)
    sender.update_weights()
    assert ask("poll")[0] == [0, 1]
    assert ask("again") is (kind == "double buffer")
