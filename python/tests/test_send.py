"""Versions from a trainer to engines in separate processes, with numpy."""

import asyncio
import copy
import gc
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from engine_contents import contents

import bascule

PATIENCE = 60


@pytest.fixture
def model():
    random = numpy.random.default_rng(7)
    return {
        "embed.weight": random.standard_normal((33, 16), dtype=numpy.float32),
        "turned": random.standard_normal((8, 8), dtype=numpy.float32).T,
        "half": random.standard_normal(5).astype(numpy.float16),
        "ids": random.integers(0, 1 << 40, (3, 2)),
        "scalar": numpy.array(random.standard_normal()),
        "empty": numpy.zeros((0, 4), numpy.float32),
        "mask": random.standard_normal(9) > 0,
    }


@pytest.fixture
def sender(endpoint, model):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        yield sender


def step(model):
    for tensor in model.values():
        if tensor.dtype == bool:
            tensor[...] = ~tensor
        else:
            tensor += 1


def test_every_engine_serves_each_version_bit_by_bit(endpoint, engines, model, sender):
    a, b = engines(endpoint, "a"), engines(endpoint, "b")
    assert sorted(sender.wait_for_workers(2)) == ["a", "b"]
    for version in range(1, 4):
        step(model)
        sender.send_async()
        for engine in (a, b):
            assert engine.ask("commit", version=version) == {"version": version, "weights": contents(model)}
        report = sender.wait_async()
        assert report.version == sender.version == version
        assert report.complete and report.bytes == sum(tensor.nbytes for tensor in model.values())
        assert len(report.digest) == 32 and report.seconds.total > 0 and not report.warnings
        assert {worker.worker: (worker.state, worker.error) for worker in report.workers} == {
            "a": ("serving", None), "b": ("serving", None)}
    a.end(), b.end()


def test_a_send_waits_for_engines_that_follow(endpoint, engines, model, sender):
    engine = engines(endpoint)
    engine.ask("follow")
    sender.wait_for_workers(1)
    for _ in range(5):
        step(model)
        assert sender.send().complete
        assert engine.ask("weights") == {"version": sender.version, "weights": contents(model)}


def test_an_update_is_told_in_the_next_report(endpoint, engines, model, sender):
    engine = engines(endpoint)
    engine.ask("follow")
    sender.wait_for_workers(1)
    sender.update_weights()
    step(model)
    report = sender.send()
    assert [(update.version, update.error) for update in report.updates] == [(1, None)]
    assert report.version == 2 and report.complete


def test_a_tensor_that_moved_or_was_turned_is_followed(endpoint, engines, model, sender):
    engine = engines(endpoint)
    sender.wait_for_workers(1)
    square = numpy.arange(64, dtype=numpy.float32).reshape(8, 8)
    for change in ({"embed.weight": model["embed.weight"] * 2}, {"turned": square}, {"turned": square.T}, {}):
        model.update(change)
        step(model)
        version = sender.version + 1
        sender.send_async()
        assert engine.ask("commit", version=version)["weights"] == contents(model), change.keys()
        sender.wait_async()


def test_other_weights_are_sent_in_place_of_the_registered(endpoint, engines, model, sender):
    engine = engines(endpoint)
    sender.wait_for_workers(1)
    others = {name: tensor.copy() for name, tensor in reversed(model.items())}
    step(others)
    sender.send_async(others)
    assert engine.ask("commit", version=1)["weights"] == contents(others)
    sender.wait_async()
    for wrong in ("text", [1], 3):
        with pytest.raises(bascule.BasculeError, match="expected a module or a mapping of names to tensors"):
            sender.send(wrong)
    del others["ids"]
    with pytest.raises(bascule.BasculeError, match="ids I64 .* is not among the weights"):
        sender.send(others)


def test_only_the_named_workers_get_it(endpoint, engines, model, sender):
    a, b = engines(endpoint, "a"), engines(endpoint, "b")
    a.ask("follow"), b.ask("follow")
    sender.wait_for_workers(2)
    assert sender.send().complete
    step(model)
    assert [worker.worker for worker in sender.send(worker_ids=["b"]).workers if worker.state == "serving"] == ["b"]
    assert a.ask("weights")["version"] == 1 and b.ask("weights")["version"] == 2
    with pytest.raises(bascule.BasculeError, match="nobody") as error:
        sender.send(worker_ids="nobody")
    assert error.value.code == "NOT_FOUND"


def test_errors_have_codes_and_the_texts_of_torchrl(endpoint, engines, model, sender):
    with pytest.raises(RuntimeError, match="No async send is pending. Call send_async"):
        sender.wait_async()
    engines(endpoint)
    sender.wait_for_workers(1)
    sender.send_async()
    for call in (sender.send, sender.send_async):
        with pytest.raises(RuntimeError, match="while a previous send is pending. Call wait_async") as error:
            call()
        assert error.value.code == "FAILED_PRECONDITION"
    with pytest.raises(TimeoutError, match="stays pending") as error:
        sender.wait_async(timeout=0.05)
    assert isinstance(error.value, bascule.BasculeError) and error.value.code == "DEADLINE_EXCEEDED"
    with pytest.raises(bascule.BasculeError, match="registered already"):
        sender.register_model(model)
    with pytest.raises(bascule.BasculeError, match="this process, pid .*, has a sender at .* already; close that one first") as error:
        bascule.Sender(endpoint)
    assert error.value.code == "ALREADY_EXISTS"


def test_what_cannot_be_sent_is_named(endpoint, model, sender, tmp_path):
    for tensor, text in ((model["ids"].astype("int32"), r"ids is I32 \[3, 2\] on the host; it was registered as I64"),
                         (model["ids"][:2], r"ids is I64 \[2, 2\]"), (None, "expected a torch tensor.*found NoneType"),
                         ("text", "tensor ids: expected a torch tensor, a numpy array.*found str")):
        good, model["ids"] = model["ids"], tensor
        with pytest.raises(bascule.BasculeError, match=text) as error:
            sender.send()
        assert error.value.code == "INVALID_ARGUMENT"
        model["ids"] = good
    del model["ids"]
    with pytest.raises(bascule.BasculeError, match="tensor ids was registered and is no longer in the model"):
        sender.send()
    other = bascule.Sender(f"shm://{tmp_path}/other")
    for tensors, text in (({"a": numpy.zeros(3, complex)}, "tensor a: no tensors of the type complex128"),
                          ({"a": numpy.zeros(3, ">f4")}, "tensor a: its bytes are not in this machine.s order"),
                          ({}, "no tensors"), (["a"], "expected a module, a mapping of names to tensors")):
        with pytest.raises(bascule.BasculeError, match=text):
            other.register_model(tensors)


def test_what_has_no_memory_to_be_read_later_is_named(tmp_path):
    class Copies:
        def __dlpack__(self, **options):
            return numpy.zeros(1000, "f4").__dlpack__(**options)

        def __dlpack_device__(self):
            return 1, 0

    class Fails(Copies):
        def __dlpack__(self, **options):
            raise OSError("no memory")

    for tensor, text in ((numpy.float32(3), "float32 does not have its own memory"), (Copies(), "makes a copy"),
                         (Fails(), "its __dlpack__"), (Copies, "its __dlpack__"),
                         (numpy.zeros(3, "V0"), "no tensors of the type")):
        with bascule.Sender(f"shm://{tmp_path}/endpoint") as sender:
            with pytest.raises(bascule.BasculeError, match=f"tensor a: .*{text}") as error:
                sender.register_model({"a": tensor})
            assert error.value.code == "INVALID_ARGUMENT"


def test_a_masked_array_is_refused_by_name(tmp_path):
    masked = numpy.ma.masked_array(numpy.ones(3), [0, 1, 0])
    with bascule.Sender(f"shm://{tmp_path}/a") as sender:
        with pytest.raises(bascule.BasculeError, match="tensor a: it is a masked array, whose mask would not be sent"):
            sender.register_model({"a": masked})
        sender.register_model({"a": masked.filled(0)})
        with pytest.raises(bascule.BasculeError, match="tensor a: it is a masked array"):
            sender.send({"a": masked})
    with bascule.Sender(f"shm://{tmp_path}/b", expect_workers=0) as sender:
        sender.register_model([bascule.TensorSpec("a", "float64", [3])])
        with pytest.raises(bascule.BasculeError, match="tensor a: it is a masked array"):
            sender.stream([("a", masked)])


@pytest.mark.parametrize("travels", [5, None, "\udcff"])
def test_a_rename_that_gives_no_name_is_refused(travels, tmp_path):
    for model in ({"a": numpy.ones(3)}, [bascule.TensorSpec("a", numpy.float64, [3])]):
        with bascule.Sender(f"shm://{tmp_path}/endpoint") as sender:
            with pytest.raises(bascule.BasculeError, match="name"):
                sender.register_model(model, rename=lambda name: travels)


def test_names_and_timeouts_that_are_none_are_refused(endpoint, sender, tmp_path):
    for name in (1, None, "x\ud800", ""):
        with pytest.raises(bascule.BasculeError, match="name") as error:
            bascule.Sender(f"shm://{tmp_path}/{hash(name)}").register_model({name: numpy.ones(3)})
        assert error.value.code == "INVALID_ARGUMENT"
    for timeout in (float("nan"), -1):
        with pytest.raises(bascule.BasculeError, match="timeout: expected seconds"):
            sender.wait_for_workers(1, timeout)
        with bascule.Receiver(endpoint, worker="w") as receiver:
            for call in (receiver.take, receiver.wait_ready):
                with pytest.raises(bascule.BasculeError, match="timeout: expected seconds"):
                    call(timeout=timeout)


def test_no_end_is_copied_or_pickled(endpoint, sender):
    with bascule.Receiver(endpoint, worker="w") as receiver:
        for end in (sender, receiver):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(bascule.BasculeError, match="cannot be copied or pickled"):
                    way(end)


def test_a_closed_sender_says_so(model, sender):
    sender.close()
    sender.close()
    assert "closed" in repr(sender)
    for call in (sender.send, sender.wait_async, lambda: sender.wait_for_workers(1), lambda: sender.version):
        with pytest.raises(bascule.BasculeError, match="closed"):
            call()


def test_objects_with_dlpack_alone_are_sent(endpoint, engines):
    class Opaque:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = numpy.arange(12, dtype=numpy.int16).reshape(3, 4)
    engine = engines(endpoint)
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"a": Opaque(array[:, ::2])})
        sender.wait_for_workers(1)
        sender.send_async()
        assert engine.ask("commit", version=1)["weights"] == contents({"a": array[:, ::2]})
        sender.wait_async()


def test_lines_go_to_logging_or_to_the_given_function(endpoint, engines, model, caplog, tmp_path):
    lines = []
    with caplog.at_level("INFO", "bascule"), bascule.Sender(endpoint) as sender, \
            bascule.Sender(f"shm://{tmp_path}/other", log=lines.append) as other:
        workers = []
        for each, place in ((sender, endpoint), (other, f"shm://{tmp_path}/other")):
            each.register_model(model)
            workers.append(engines(place))
            workers[-1].ask("follow")
            each.wait_for_workers(1)
            assert each.send().complete
        deadline = time.monotonic() + PATIENCE
        joined = [f"worker engine-0 joined (pid {worker.process.pid}," for worker in workers]
        while not (lines and joined[0] in caplog.text) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert joined[1] in lines[0]
    assert caplog.text.count(joined[0]) == 1  # an earlier test's line may come late
    assert joined[1] not in caplog.text


def test_a_log_that_ends_its_thread_takes_no_lines_from_others(endpoint, tmp_path, model):
    def ends(line):
        raise SystemExit

    lines = []
    for log, place in ((ends, "one"), (lines.append, "two")):
        with bascule.Sender(f"shm://{tmp_path}/{place}", log=log) as sender:
            sender.register_model(model)
            with bascule.Receiver(f"shm://{tmp_path}/{place}", worker="w"):
                sender.wait_for_workers(1)
            deadline = time.monotonic() + PATIENCE
            while log != ends and not lines and time.monotonic() < deadline:
                time.sleep(0.01)
    assert lines and "w" in lines[0]


def test_a_sender_that_is_dropped_frees_its_endpoint_also_where_its_log_holds_it(endpoint):
    class Trainer:
        def __init__(self):
            self.sender = bascule.Sender(endpoint, log=self.log)

        def log(self, line):
            pass

    for _ in range(2):
        Trainer()
        gc.collect()


def test_a_timeout_also_ends_the_wait_for_another_threads_call(sender, model):
    begun, end = threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert end.wait(PATIENCE)
        yield from model.items()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(sender.stream, slow())
        try:
            assert begun.wait(PATIENCE)
            for wait in (lambda: sender.wait_async(timeout=0.1), lambda: sender.wait_for_workers(1, timeout=0.1),
                         lambda: asyncio.run(sender.await_for_workers(1, timeout=0.1))):
                with pytest.raises(bascule.BasculeTimeoutError, match="another thread's call .* longer than 0.1 seconds"):
                    wait()
            sender.expect_workers(3)
            assert not other.done()
        finally:
            end.set()
        assert other.result(PATIENCE).expected == 1
    assert sender.send().expected == 3
