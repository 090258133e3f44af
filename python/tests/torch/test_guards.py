"""Copies of a model that follows: each holds one version, although versions arrive meanwhile."""

import contextlib
import copy
import gc
import io
import itertools
import multiprocessing
import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import bascule
from bascule import hf

PATIENCE = 60
PARTS, WIDTH = 24, 1 << 15


class Net(torch.nn.Module):
    def __init__(self, start=0.0):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1, WIDTH, bias=False) for _ in range(PARTS))
        self.tied = self.layers[0].weight
        self.old = self.forward  # as wrappers keep it: a method that is bound to the model
        set_all(self, start)

    def forward(self):
        return [layer.weight.flatten()[0] for layer in self.layers]

    def save_pretrained(self, folder):
        torch.save(self.state_dict(), folder / "model.pt")


@torch.no_grad()
def set_all(model, value):
    for tensor in model.parameters():
        tensor.fill_(value)


def values(tensors):
    return {value for tensor in tensors for value in (tensor.flatten()[0].item(), tensor.flatten()[-1].item())}


def loaded(write):
    file = io.BytesIO()
    write(file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def saved_pretrained(model, following, tmp_path):
    model.save_pretrained(tmp_path)
    return torch.load(tmp_path / "model.pt").values()


def held(copied):
    def look(model, following, tmp_path):
        with following.held() as version:
            found = list(copied(model))
            assert values(found) == {float(version)}
            return found
    return look


def whole_load(model, following, tmp_path):
    """What is written must not be mixed with a version either."""
    with following.held() as version:
        other = {name: torch.full_like(tensor, version) for name, tensor in model.state_dict().items()}
    model.load_state_dict(other)
    with following.held():
        return [tensor.clone() for tensor in model.parameters()]


COPIES = {
    "deepcopy": lambda model, *_: copy.deepcopy(model).parameters(),
    "deepcopy of a part": lambda model, *_: copy.deepcopy(model.layers).parameters(),
    "pickle": lambda model, *_: pickle.loads(pickle.dumps(model)).parameters(),
    "torch.save of the model": lambda model, *_: loaded(lambda file: torch.save(model, file)).parameters(),
    "save_pretrained": saved_pretrained,
    "held, state_dict and clone": held(lambda model: [tensor.clone() for tensor in model.state_dict().values()]),
    "state_dict and clone": lambda model, *_: {k: tensor.clone() for k, tensor in model.state_dict().items()}.values(),
    "torch.save of state_dict": lambda model, *_: loaded(lambda file: torch.save(model.state_dict(), file)).values(),
    "held, torch.save": held(lambda model: loaded(lambda file: torch.save(model.state_dict(), file)).values()),
    "held, parameters one by one": held(lambda model: [tensor.detach().clone() for tensor in model.parameters()]),
    "held, a direct call of a part": held(lambda model: [layer(torch.ones(1)).detach() for layer in model.layers]),
}


def _trainer(endpoint, stop):
    with bascule.Sender(endpoint) as sender:
        model = Net()
        sender.register_model(model)
        sender.wait_for_workers(1, PATIENCE)
        version = 0
        while not stop.is_set():
            version += 1
            set_all(model, float(version))
            sender.send()


@pytest.fixture
def trainer(endpoint):
    """A process that sends versions as fast as it can; the weights of version n are n."""
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    process = spawn.Process(target=_trainer, args=(endpoint, stop))
    process.start()
    yield
    stop.set()
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.filterwarnings("error")
def test_each_copy_is_of_one_version_while_versions_arrive(in_place, endpoint, trainer, tmp_path):
    model, seen = Net(), {}
    with hf.follow(model, endpoint, in_place=in_place) as following:
        following.wait(1, PATIENCE)
        for what, look in COPIES.items() if in_place else (COPIES | {"load_state_dict": whole_load}).items():
            seen[what], first, until = [], following.version, time.monotonic() + PATIENCE
            while len(seen[what]) < 20 or following.version < first + 20:
                seen[what].append(values(look(model, following, tmp_path)))
                assert time.monotonic() < until
    torn = {what: sum(len(each) > 1 for each in found) for what, found in seen.items()}
    assert not any(torn.values()), torn


def test_a_copy_has_no_guards_and_refers_to_itself(endpoint):
    model = Net()
    with hf.follow(model, endpoint):
        for other in (copy.deepcopy(model), loaded(lambda file: torch.save(model, file))):
            assert sorted(vars(other)) == sorted(vars(Net())) and other.old.__self__ is other
            assert other.layers[0].weight is other.tied and "forward" not in vars(other.layers[0])
            with hf.follow(other, endpoint, worker="other"):
                pass
        both = copy.deepcopy({"model": model, "weight": model.tied})
        assert both["model"].tied is both["weight"]
    assert sorted(vars(model)) == sorted(vars(Net()))


def test_a_modules_own_deepcopy_is_called(endpoint):
    class Own(torch.nn.Linear):
        def __deepcopy__(self, memo):
            return "mine"

    with hf.follow(torch.nn.Sequential(Own(2, 2)), endpoint) as following:
        assert copy.deepcopy(following._places.model)[0] == "mine"


def send_one(sender, net, value):
    set_all(net, value)
    sender.send_async()


def plain(model):
    return dict(model.state_dict())


@pytest.mark.parametrize("taken", [lambda model: model.state_dict(), plain,
                                   lambda model: {k: v.contiguous() for k, v in model.state_dict().items()},
                                   lambda model: [model.state_dict()["tied"]]])
def test_a_flip_waits_until_a_state_dict_and_its_tensors_are_freed(taken, endpoint):
    trainer, model = Net(), Net()
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        state = taken(model)
        send_one(sender, trainer, 1.0)
        with pytest.raises(bascule.BasculeTimeoutError):
            sender.wait_async(0.3)
        del state
        assert sender.wait_async(PATIENCE).complete and values(model.parameters()) == {1.0}
        kept = model.state_dict(keep_vars=True)["tied"]  # the model's own, which is never freed
        send_one(sender, trainer, 2.0)
        assert sender.wait_async(PATIENCE).complete and kept is model.tied


def test_a_flip_waits_until_a_state_dict_is_freed_and_calls_do_not(endpoint, caplog):
    trainer, model = Net(), Net()
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint) as following:
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        state = model.state_dict()
        assert state["tied"].data_ptr() == model.tied.data_ptr()
        send_one(sender, trainer, 1.0)
        with pytest.raises(bascule.BasculeTimeoutError):
            sender.wait_async(1.5)
        assert values(state.values()) == {0.0} == {value.item() for value in model()}
        assert "a version waits, because a result of state_dict() is in use" in caplog.text
        del state
        assert sender.wait_async(PATIENCE).complete and values(model.parameters()) == {1.0}


def test_a_state_dict_in_a_reference_cycle_delays_no_version_for_long(endpoint, caplog):
    trainer, model = Net(), Net()

    def save_in_vain():
        state = model.state_dict()
        try:
            raise OSError("no space left")
        except OSError as error:
            kept = error  # refers to this frame by its traceback
        return len(state), bool(kept)

    with bascule.Sender(endpoint + "?flip_timeout=60s") as sender, hf.follow(model, endpoint):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        gc.disable()
        try:
            save_in_vain()
            send_one(sender, trainer, 1.0)
            assert sender.wait_async(PATIENCE).complete
        finally:
            gc.enable()
        assert "a version waits" not in caplog.text and "was in use" not in caplog.text


def test_a_state_dict_that_is_kept_ends_nothing(endpoint, caplog, monkeypatch):
    monkeypatch.setattr("bascule._calls._LONGEST_USE", 0.5)
    trainer, model = Net(), Net()
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint) as following:
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        state = model.state_dict()
        send_one(sender, trainer, 1.0)
        assert sender.wait_async(PATIENCE).complete and values(state.values()) == {1.0}
        assert "was in use for" in caplog.text
        send_one(sender, trainer, 2.0)  # it does not wait for the same dict again
        assert sender.wait_async(PATIENCE).complete
        monkeypatch.undo()
        kept = model.state_dict()
        send_one(sender, trainer, 3.0)
        following.close()  # does not wait for it
        assert values(kept.values()) == {2.0}


def test_a_plain_dict_of_a_modules_own_state_dict_warns(endpoint):
    class Own(Net):
        def state_dict(self, *arguments, **named):
            return dict(super().state_dict(*arguments, **named, keep_vars=True))

    model = Own()
    with hf.follow(model, endpoint) as following:
        with pytest.warns(UserWarning, match=r"state_dict\(\) of Own .* within following\.held\(\)") as caught:
            model.state_dict()
        assert len(caught) == 1 and caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with following.held():
                model.state_dict()


def test_held_yields_the_version_and_a_flip_waits_for_it(endpoint):
    trainer, model = Net(), Net()
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint) as following:
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        with following.held() as version:
            assert version == 0
        set_all(trainer, 1.0)
        sender.send()
        with following.held() as version, following.held():
            set_all(trainer, 2.0)
            sender.send_async()
            with pytest.raises(bascule.BasculeTimeoutError):
                sender.wait_async(0.3)
            assert version == following.version == 1 and values(model.parameters()) == {1.0}
            model()
            with pytest.raises(bascule.BasculeError, match=r"close\(\) within a call of the model, or within held\(\)"):
                following.close()
        assert sender.wait_async(PATIENCE).complete and following.version == 2
        with pytest.raises(ZeroDivisionError), following.held():
            1 / 0
        assert sender.send().complete
    with following.held() as version:  # it has left
        assert version == 3


def test_a_flip_waits_for_the_hooks_around_forward(endpoint):
    def normed(value):
        linear = torch.nn.Linear(1, 1)
        set_all(linear, value)
        return torch.nn.utils.weight_norm(linear)  # a hook computes the weight from weight_g and weight_v

    trainer, model = normed(1.0), normed(1.0)
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint):
        sender.register_model(trainer)
        sender.wait_for_workers(1)

        def send(*_):
            send_one(sender, trainer, 2.0)
            with pytest.raises(bascule.BasculeTimeoutError):
                sender.wait_async(0.5)

        hook = model.register_forward_pre_hook(send)
        assert model(torch.ones(1)).item() == 2.0
        hook.remove()
        assert sender.wait_async(PATIENCE).complete and model(torch.ones(1)).item() == 4.0
        hook = model.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(torch.ones(1))
        assert sender.send().complete
    assert "_call_impl" not in vars(model)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_version_that_arrives_during_a_functional_call_is_the_models(in_place, endpoint):
    trainer, model = Net(), Net()
    lent = {name: torch.full_like(tensor, 7.0) for name, tensor in model.named_parameters()}
    with (bascule.Sender(endpoint) as sender, hf.follow(model, endpoint, in_place=in_place) as following,
          ThreadPoolExecutor(1) as pool):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        for version in (1.0, 2.0):
            with following._calls.held():
                send_one(sender, trainer, version)
                until(lambda: following._calls._flipping)
                call = pool.submit(torch.func.functional_call, model, lent, ())
                until(lambda: model.tied is lent["tied"])
            assert sender.wait_async(PATIENCE).complete
            assert values(call.result(PATIENCE)) == values(lent.values()) == {7.0}
            assert values(model.parameters()) == {version}
        model.layers[1].weight = torch.nn.Parameter(torch.zeros(WIDTH, 1))  # another one is the model's now
        set_all(trainer, 3.0)
        assert sender.send().complete and values(model.parameters()) == {3.0}


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def in_turn(threads, generator):
    """All values of a generator, each made by the next one of some threads."""
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(threads)]
        for pool in itertools.cycle(pools):
            if (value := pool.submit(next, generator, None).result(PATIENCE)) is None:
                return
            yield value


def test_threads_of_a_pool_may_take_turns_within_held(endpoint):
    trainer, model = Net(), Net()

    def stream(following):
        with following.held() as version:
            for _ in range(4):
                yield version, *values(model())

    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint) as following:
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        for version in (1, 2, 3):
            seen = in_turn(3, stream(following))
            assert next(seen) == (version - 1, version - 1.0)
            send_one(sender, trainer, float(version))  # it waits, and the other threads' calls do not
            with pytest.raises(bascule.BasculeTimeoutError):
                sender.wait_async(0.3)
            assert set(seen) == {(version - 1, version - 1.0)}
            assert sender.wait_async(PATIENCE).complete and values(model.parameters()) == {version}


def test_a_generate_that_yields_its_tokens_is_one_call(endpoint):
    class Streaming(Net):
        @torch.no_grad()
        def generate(self, count):
            for _ in range(count):
                yield values(self())

    trainer, model = Net(), Streaming()
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint, at="call"):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        for version in (1.0, 2.0):
            tokens = in_turn(2, model.generate(3))
            first = next(tokens)
            send_one(sender, trainer, version)
            with pytest.raises(bascule.BasculeTimeoutError):
                sender.wait_async(0.3)
            assert [first, *tokens] == 3 * [{version - 1}] and sender.wait_async(PATIENCE).complete
        tokens = model.generate(3)
        assert next(tokens) == {2.0}
        del tokens  # its call ends
        assert sender.send().complete


def test_shared_memory_and_in_place_exclude_each_other(endpoint):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with hf.follow(model, endpoint, in_place=True):
        for part in (model, model[0]):
            with pytest.raises(bascule.BasculeError, match=r"share_memory\(\) .* follow with in_place=False") as error:
                part.share_memory()
            assert error.value.code == "FAILED_PRECONDITION"
    model.share_memory()
    with pytest.raises(bascule.BasculeError, match=r"tensor 0.weight: it is in shared memory .*in_place=False"):
        hf.follow(model, endpoint, in_place=True)
    with hf.follow(model, endpoint):
        pass


def test_other_processes_see_each_version_of_a_model_in_shared_memory(endpoint):
    trainer, model = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    with bascule.Sender(endpoint) as sender, hf.follow(model, endpoint):
        sender.register_model(trainer)
        sender.wait_for_workers(1)
        sender.send()
        model.share_memory()
        spawn = torch.multiprocessing.get_context("spawn")
        queue, answers = spawn.SimpleQueue(), spawn.SimpleQueue()
        process = spawn.Process(target=_sums, args=(model.weight, queue, answers))
        process.start()
        for value in (3.0, 4.0, 5.0):
            set_all(trainer, value)
            sender.send()
            queue.put(True)
            assert answers.get() == 4 * value
        queue.put(False)
        process.join(PATIENCE)
        assert process.exitcode == 0


def _sums(weight, queue, answers):
    while queue.get():
        answers.put(weight.sum().item())
