"""Models that follow an endpoint: what a call of the model sees, and what happens between calls."""

import copy
import io
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
import torch

import bascule
from bascule import hf

PATIENCE = 60


class Net(torch.nn.Module):
    """Returns its weights at the beginning and at the end of a call."""

    def __init__(self, start=0.0):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 40)
        self.low = torch.nn.Linear(40, 3, dtype=torch.bfloat16)
        self.head = torch.nn.Linear(40, 50, bias=False)
        self.head.weight = self.embed.weight  # tied
        self.register_buffer("table", torch.zeros(4))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)
        set_all(self, start)
        self.entered, self.leave = threading.Event(), threading.Event()
        self.leave.set()

    def forward(self):
        before = values(self)
        self.entered.set()
        assert self.leave.wait(PATIENCE)
        return before | values(self)

    def generate(self, count, behind_first=lambda: None):
        first = self()
        behind_first()
        return [first] + [self() for _ in range(count - 1)]


@torch.no_grad()
def set_all(model, value):
    for tensor in model.state_dict().values():
        tensor.fill_(value)


def values(model):
    return {value for tensor in model.state_dict().values() for value in (tensor.min().item(), tensor.max().item())}


@pytest.fixture
def sender(endpoint):
    with bascule.Sender(endpoint) as sender:
        yield sender


def send(sender, model, value):
    set_all(model, value)
    report = sender.send()
    assert report.complete, [worker.error for worker in report.workers]
    return report.version


def _engine(endpoint, in_place, versions, answers):
    model = Net()
    with hf.follow(model, endpoint, worker="engine", in_place=in_place) as following:
        for version in range(1, versions + 1):
            following.wait(version, PATIENCE)
            answers.put(sorted(model()))
    answers.put(sorted(model()))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_of_another_process_follows_while_it_is_idle(endpoint, sender, in_place):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    process = spawn.Process(target=_engine, args=(endpoint, in_place, 3, answers))
    process.start()
    model = Net()
    sender.register_model(model)
    sender.wait_for_workers(1, PATIENCE)
    for version in range(1, 4):
        assert send(sender, model, float(version)) == version
        assert answers.get(timeout=PATIENCE) == [float(version)]
    assert answers.get(timeout=PATIENCE) == [3.0]  # its own weights, once it has left
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_a_flip_waits_for_the_call_that_has_begun(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint) as following:
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        model.leave.clear()
        model.entered.clear()
        seen = []
        call = threading.Thread(target=lambda: seen.append(model()))
        call.start()
        assert model.entered.wait(PATIENCE)
        set_all(trainer, 2.0)
        sender.send_async()
        with pytest.raises(bascule.BasculeTimeoutError):
            sender.wait_async(0.3)
        assert following.version == 1
        model.leave.set()
        call.join(PATIENCE)
        assert seen == [{1.0}]
        assert sender.wait_async(PATIENCE).complete
        assert following.version == 2 and model() == {2.0}


def test_generate_sees_the_next_version_at_its_next_token(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint) as following:
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model.generate(2, lambda: send(sender, trainer, 2.0)) == [{1.0}, {2.0}]
        assert following.version == 2


def test_generate_is_one_call_where_one_version_is_wanted(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, at="call"):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)

        def send_meanwhile():
            set_all(trainer, 2.0)
            sender.send_async()
            with pytest.raises(bascule.BasculeTimeoutError):
                sender.wait_async(0.3)

        assert model.generate(2, send_meanwhile) == [{1.0}, {1.0}]
        assert sender.wait_async(PATIENCE).complete
        assert model() == {2.0}
    assert "generate" not in vars(model) and "forward" not in vars(model)


def test_in_place_the_model_has_no_memory_of_its_own_and_is_itself_again_at_the_end(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, in_place=True):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model.head.weight is model.embed.weight and not model.embed.weight.requires_grad
        first = model.embed.weight.data_ptr()
        send(sender, trainer, 2.0)
        assert model.embed.weight.data_ptr() != first
        assert "memfd" in mapping_of(model.embed.weight.data_ptr())
    assert "memfd" not in mapping_of(model.embed.weight.data_ptr())
    assert model.embed.weight.requires_grad and model() == {2.0}
    set_all(model, 3.0)  # writable
    assert model() == {3.0}


def mapping_of(address):
    for line in open("/proc/self/maps"):
        first, last = (int(each, 16) for each in line.split()[0].split("-"))
        if first <= address < last:
            return line
    raise AssertionError(f"nothing is mapped at {address:x}")


@pytest.mark.parametrize("in_place", [False, True])
def test_a_version_that_does_not_fit_is_refused_by_name_and_the_model_stays(endpoint, sender, in_place):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, in_place=in_place, worker="w") as following:
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        fitting = model.low
        model.low = torch.nn.Linear(40, 4, dtype=torch.bfloat16)
        report = sender.send()
        assert "low.weight came as torch.bfloat16 [3, 40]; the model's is torch.bfloat16 [4, 40]" in str(
            report.workers[0].error)
        assert following.version == 1 and "low.weight" in str(following.error)
        model.low = fitting
        assert model() == {1.0}
        following.wait(2, PATIENCE)  # it comes again
        assert following.error is None


def test_types_are_cast_where_they_are_copied_and_refused_in_place(endpoint, sender):
    trainer, model = Net(), Net().bfloat16()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, worker="a"):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model.embed.weight.dtype == torch.bfloat16 and model() == {1.0}
    with hf.follow(model, endpoint, worker="b", in_place=True) as following:
        with pytest.raises(bascule.BasculeTimeoutError, match="in place they must be the same"):
            following.wait(timeout=1)
        assert model() == {1.0}


def test_one_name_of_a_tied_tensor_is_enough(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model({name: tensor for name, tensor in trainer.state_dict().items() if name != "head.weight"})
    with hf.follow(model, endpoint):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model.head.weight is model.embed.weight and model() == {1.0}


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("over_one_storage", [False, True])
def test_a_tied_tensor_that_comes_as_two_different_ones_is_refused_by_name(over_one_storage, in_place, endpoint):
    served = torch.nn.ModuleDict({"embed": torch.nn.Embedding(3, 2), "head": torch.nn.Linear(2, 3, bias=False)})
    if over_one_storage:
        served["head"].weight.data = served["embed"].weight.data
    else:
        served["head"].weight = served["embed"].weight
    tied = {"embed.weight": torch.full((3, 2), 1.0), "head.weight": torch.full((3, 2), 1.0)}
    with bascule.Sender(endpoint) as sender, hf.follow(served, endpoint, worker="w", in_place=in_place) as following:
        sender.register_model(tied)
        sender.wait_for_workers(1, PATIENCE)
        assert sender.send().complete  # equal
        tied["head.weight"].fill_(2)
        report = sender.send()
        if in_place and over_one_storage:  # then they are two views of the slot
            assert report.complete and served["head"].weight.sum() == 12 and served["embed"].weight.sum() == 6
        else:
            assert "tensors embed.weight and head.weight are one tensor" in report.why_incomplete
            assert served["head"].weight.sum() == 6 and following.version == 1


def test_a_trainer_that_is_started_again_is_followed(endpoint):
    trainer, model = Net(), Net()
    with hf.follow(model, endpoint, worker="w") as following:
        for value in (1.0, 2.0):
            with bascule.Sender(endpoint) as sender:
                sender.register_model(trainer)
                sender.wait_for_workers(1)
                send(sender, trainer, value)
            assert model() == {value} and following.version > 0


def test_wrong_arguments_are_refused_by_name(endpoint):
    with pytest.raises(bascule.BasculeError, match="expected a torch module, found dict"):
        hf.follow({}, endpoint)
    with pytest.raises(bascule.BasculeError, match="found 'step'"):
        hf.follow(Net(), endpoint, at="step")
    with pytest.raises(bascule.BasculeError, match="tensor low.weight: it is on the device meta"):
        model = Net()
        model.low.to("meta")
        hf.follow(model, endpoint)
    with hf.follow(Net(), endpoint) as following:
        with pytest.raises(bascule.BasculeTimeoutError, match="no version 1 of the model within 0.1 seconds"):
            following.wait(timeout=0.1)
    following.close()


def test_a_copy_of_the_model_is_its_own(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, at="call"):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        model.entered = model.leave = None  # events cannot be copied
        other = copy.deepcopy(model)
        other.entered = other.leave = threading.Event()
        other.leave.set()
        send(sender, trainer, 2.0)
        assert other.generate(1) == [{1.0}]


def test_a_forked_child_can_call_the_model(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        child = os.fork()
        if child == 0:
            os._exit(0 if model() == {1.0} else 1)
        assert os.waitpid(child, 0)[1] == 0
        send(sender, trainer, 2.0)
        assert model() == {2.0}


class Wrapper(torch.nn.Module):
    """Its generate() calls the inner model's, not its own forward(), like adapters do."""

    def __init__(self):
        super().__init__()
        self.base = Net()

    def forward(self):
        return self.base()

    def generate(self, count, behind_first=lambda: None):
        return self.base.generate(count, behind_first)


def test_a_wrapper_whose_generate_calls_the_model_within_is_guarded_at_each_token(endpoint, sender):
    trainer, model = Wrapper(), Wrapper()
    sender.register_model(trainer)
    with hf.follow(model, endpoint) as following:
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        model.base.leave.clear()
        model.base.entered.clear()
        seen = []
        call = threading.Thread(target=lambda: seen.append(model.generate(1)))
        call.start()
        assert model.base.entered.wait(PATIENCE)
        set_all(trainer, 2.0)
        sender.send_async()
        with pytest.raises(bascule.BasculeTimeoutError):
            sender.wait_async(0.3)
        model.base.leave.set()
        call.join(PATIENCE)
        assert seen == [[{1.0}]] and sender.wait_async(PATIENCE).complete and following.version == 2


def test_a_call_that_is_interrupted_has_ended(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)

        def interrupted(_):
            raise KeyboardInterrupt

        model.leave.wait = interrupted
        for call in (model, lambda: model.generate(1)):
            with pytest.raises(KeyboardInterrupt):
                call()
        del model.leave.wait
        send(sender, trainer, 2.0)
        assert model() == {2.0}


@pytest.mark.parametrize("in_place", [False, True])
def test_close_waits_for_the_call_of_another_thread(endpoint, sender, in_place):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    following = hf.follow(model, endpoint, in_place=in_place)
    sender.wait_for_workers(1)
    send(sender, trainer, 1.0)
    model.leave.clear()
    model.entered.clear()
    seen = []
    call = threading.Thread(target=lambda: seen.append(model()))
    call.start()
    assert model.entered.wait(PATIENCE)
    closing = threading.Thread(target=following.close)
    closing.start()
    closing.join(0.3)
    assert closing.is_alive()
    model.leave.set()
    closing.join(PATIENCE)
    call.join(PATIENCE)
    assert not closing.is_alive() and seen == [{1.0}]
    following.close()
    set_all(model, 3.0)  # its own memory
    assert model() == {3.0} and "forward" not in vars(model)


def test_close_within_a_call_is_refused_and_changes_nothing(endpoint, sender):
    trainer, model = Net(), Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, at="call") as following:
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        with pytest.raises(bascule.BasculeError, match=r"close\(\) within a call of the model"):
            model.generate(1, following.close)
        send(sender, trainer, 2.0)
        assert model() == {2.0}


def test_an_interpreter_that_ends_with_a_thread_inside_a_call_ends(endpoint):
    program = """if True:
        import sys, threading, torch
        from bascule import hf
        class Stuck(torch.nn.Linear):
            def forward(self):
                inside.set()
                threading.Event().wait()
        inside = threading.Event()
        model = Stuck(2, 2)
        following = hf.follow(model, sys.argv[1])
        threading.Thread(target=model, daemon=True).start()
        inside.wait()
        print("ends")
        """
    ended = subprocess.run([sys.executable, "-c", program, endpoint], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")


def test_an_interpreter_that_ends_while_a_model_follows_says_nothing(endpoint, sender):
    sender.register_model(Net())
    sender.send()
    program = """if True:
        import logging, sys
        from bascule import hf
        sys.path.insert(0, sys.argv[2])
        from test_hf import Net
        logging.basicConfig(level=logging.WARNING)
        model = Net()
        hf.follow(model, sys.argv[1]).wait()
        following = hf.follow(Net(), sys.argv[1], worker="other")
        """
    ended = subprocess.run([sys.executable, "-c", program, endpoint, os.path.dirname(__file__)], capture_output=True,
                           text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_model_follows_one_endpoint(endpoint):
    model = Wrapper()
    with hf.follow(model, endpoint):
        for part in (model, model.base):
            with pytest.raises(bascule.BasculeError, match="follows an endpoint already") as refused:
                hf.follow(part, endpoint + "-2", worker="other")
            assert refused.value.code == "FAILED_PRECONDITION"
    hf.follow(model.base, endpoint).close()


def test_a_generate_of_the_models_own_is_kept(endpoint):
    model = Net()
    model.generate = own = lambda: model.leave.is_set()
    with hf.follow(model, endpoint, at="call"):
        assert model.generate() and model.generate is not own
    assert model.generate is own


def test_a_model_that_follows_can_be_saved_whole(endpoint):
    model = torch.nn.Linear(2, 2)
    with hf.follow(model, endpoint):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(torch.ones(2)), model(torch.ones(2)))


def test_tensors_of_inference_mode_are_written_or_refused_by_name(endpoint, sender):
    with torch.inference_mode():
        model = Net()
    trainer = Net()
    sender.register_model(trainer)
    with hf.follow(model, endpoint, worker="copies"):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model() == {1.0}
    with hf.follow(model, endpoint, worker="in-place", in_place=True) as following:
        with pytest.raises(bascule.BasculeTimeoutError, match=r"tensor \S+ of the model was made under torch.inference_mode"):
            following.wait(timeout=1)
    assert model() == {1.0}


def test_a_tensor_whose_elements_lie_in_one_place_is_refused_by_name_and_nothing_is_written(endpoint, sender):
    trainer, model = Net(), Net()
    model.table = torch.zeros(1).expand(4)
    sender.register_model(trainer)
    with hf.follow(model, endpoint) as following:
        sender.wait_for_workers(1)
        set_all(trainer, 1.0)
        report = sender.send()
        assert "elements of tensor table of the model share memory" in str(report.workers[0].error)
        assert following.version == 0 and model() == {0.0}


def test_in_place_gradients_are_let_go(endpoint, sender):
    trainer, model = Net(), Net()
    model.low.weight.grad = torch.ones_like(model.low.weight)
    sender.register_model(trainer)
    with hf.follow(model, endpoint, in_place=True):
        sender.wait_for_workers(1)
        send(sender, trainer, 1.0)
        assert model.low.weight.grad is None


def test_waiting_for_no_number_of_seconds_is_refused(endpoint):
    with hf.follow(Net(), endpoint) as following:
        for timeout in (float("nan"), -1):
            with pytest.raises(bascule.BasculeError, match="expected seconds"):
                following.wait(timeout=timeout)


def test_parameters_over_one_storage_share_it_again_after_in_place(endpoint, sender):
    class Shared(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (torch.nn.Parameter(torch.zeros(3)) for _ in range(3))
            self.b.data = self.a.data

    trainer, model = Shared(), Shared()
    trainer.c.data = trainer.a.data  # shared by the trainer alone
    sender.register_model(trainer)
    with hf.follow(model, endpoint, in_place=True):
        sender.wait_for_workers(1, PATIENCE)
        for value in (1.0, 2.0):
            send(sender, trainer, value)
            assert values(model) == {value} and model.a.data_ptr() == model.b.data_ptr()
    set_all(model, 3.0)
    assert model.a.data_ptr() == model.b.data_ptr() != model.c.data_ptr()
