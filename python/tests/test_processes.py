"""Processes that are interrupted, forked or killed, or that end while a sender or a receiver is alive."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest
from engine_contents import contents

import bascule

PATIENCE = 60


@pytest.fixture
def model():
    return {"a": numpy.arange(12, dtype=numpy.float32), "b": numpy.ones(5, numpy.int64)}


def python(program, *arguments, **options):
    # A shell starts background jobs with SIGINT ignored, which their children inherit.
    options.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


TRAINER = """
    import sys, time, numpy, bascule
    sender = bascule.Sender(sys.argv[1])
    sender.register_model({"a": numpy.arange(12, dtype=numpy.float32), "b": numpy.ones(5, numpy.int64)})
"""

WAITS = {
    "wait_for_workers": TRAINER + "    wait = lambda: sender.wait_for_workers(2, timeout=100)",
    "send": TRAINER + "    sender.wait_for_workers(1); wait = sender.send",
    "wait_async": TRAINER + "    sender.wait_for_workers(1); sender.send_async(); wait = sender.wait_async",
    "update_weights": TRAINER + "    sender.wait_for_workers(1); sender.update_weights(); wait = sender.update_weights",
    "take": """
    import sys, time, bascule
    receiver = bascule.Receiver(sys.argv[2], worker="w")
    wait = lambda: receiver.take(timeout=100)
""",
    "take_version": """
    import sys, time, bascule
    receiver = bascule.Receiver(sys.argv[2], worker="w")
    wait = lambda: receiver.take(7, timeout=100)
""",
    "commit_version": """
    import sys, time, bascule
    receiver = bascule.Receiver(sys.argv[2] + "?flip_timeout=3600s", worker="w", group="g", rank=1, ranks=2)
    wait = lambda: receiver.commit(7)
""",
    "wait_ready": """
    import sys, time, bascule
    receiver = bascule.Receiver(sys.argv[2], worker="w")
    wait = lambda: receiver.wait_ready(100)
""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_every_wait(wait, endpoint, tmp_path):
    process = python(WAITS[wait] + """
    print("waits", flush=True)
    try:
        wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """, endpoint, f"shm://{tmp_path}/nobody")
    engine = bascule.Receiver(endpoint, worker="engine")  # it never flips
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n", process.communicate()[1]
    process.communicate(timeout=PATIENCE)
    engine.close()
    assert process.returncode == 0


def test_an_interrupted_send_goes_on_and_is_reported(endpoint, engines, model):
    trainer = python(TRAINER + """
    sender.wait_for_workers(1)
    print("waits", flush=True)
    try:
        sender.send()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    report = sender.send()
    print([update.version for update in report.updates], report.version, report.complete, flush=True)
    """, endpoint)
    engine = engines(endpoint)
    assert trainer.stdout.readline() == "waits\n"
    time.sleep(0.3)
    trainer.send_signal(signal.SIGINT)
    assert trainer.stdout.readline() == "interrupted\n"
    engine.ask("follow")
    assert trainer.communicate(timeout=PATIENCE) == ("[1] 2 True\n", "")
    assert engine.ask("weights")["version"] == 2


def test_a_forked_child_is_refused_and_the_parent_goes_on(endpoint, model):
    sender = bascule.Sender(endpoint)
    sender.register_model(model)
    receiver = bascule.Receiver(endpoint, worker="w")
    sender.wait_for_workers(1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (sender.send, receiver.commit, receiver.status):
            try:
                call()
            except bascule.BasculeError as error:
                said.append(f"{error.code}: {error}")
        another = bascule.Sender(endpoint + "-of-the-child")  # the child can make its own
        another.register_model(model)
        another.send()
        os.write(writing, "\n".join(said).encode())
        sender.close(), receiver.close(), another.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    said = os.read(reading, 10_000).decode().split("\n")
    assert len(said) == 3 and all(line.startswith("FAILED_PRECONDITION: this ") for line in said)
    assert all("was forked from" in line for line in said)
    sender.send_async()
    assert receiver.take() == 1
    receiver.finish()
    assert sender.wait_async().complete
    receiver.close(), sender.close()


@pytest.mark.parametrize("call", ["sender.send()", "sender.wait_for_workers(2, timeout=100)"])
def test_a_signals_handler_may_close_the_sender(call, endpoint):
    process = python(TRAINER + f"""
    import signal
    signal.signal(signal.SIGALRM, lambda *_: sender.close())
    receiver = bascule.Receiver(sys.argv[1], worker="w")  # it never flips
    sender.wait_for_workers(1)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        {call}
    except bascule.BasculeError as error:
        print(error.code, sender)
    """, endpoint)
    out, err = process.communicate(timeout=PATIENCE)
    assert (err, process.returncode) == ("", 0)
    assert out == f"CANCELLED <Sender {endpoint}, closed>\n"


@pytest.mark.parametrize("loop", [
    "sender.send_async(); receiver.take(timeout=0); receiver.finish(); sender.wait_async()",
    "receiver.commit()", "receiver.take(timeout=0.01)", "receiver.take(7, timeout=100)",
    "bascule.Sender(sys.argv[1] + str(next(number))).close()", "sender.stream(iter(block, None))"])
def test_an_interpreter_ends_with_threads_in_calls(loop, endpoint):
    process = python(TRAINER + f"""
    import itertools, threading
    number = itertools.count()
    block = lambda: time.sleep(100)
    receiver = bascule.Receiver(sys.argv[1], worker="w")
    sender.wait_for_workers(1)
    def run():
        while True:
            try:
                {loop}
            except RuntimeError:
                pass
    for _ in range(2):
        threading.Thread(target=run, daemon=True).start()
    time.sleep(0.2)
    print("ends", flush=True)
    """, endpoint)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("ends\n", 0), err


def test_ctrl_c_at_the_end_of_an_interpreter_closes_the_others_all_the_same(endpoint):
    process = python(TRAINER + """
    import threading
    sender.close()
    first, second = (bascule.Sender(sys.argv[1] + each) for each in "12")
    second.register_model({"a": numpy.ones(3)})
    block = lambda: time.sleep(100)
    threading.Thread(target=lambda: second.stream(iter(block, None)), daemon=True).start()
    close = first._close
    def closes(patience):
        close(patience)
        print(first, flush=True)
    first._close = closes
    print("ends", flush=True)
    """, endpoint)
    assert process.stdout.readline() == "ends\n"
    time.sleep(0.5)  # by now it waits for `second`
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err, process.returncode) == (f"<Sender {endpoint}1, closed>\n", "", 0)


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, even if the tests were started with SIGINT ignored, as a shell's jobs in the background are."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_a_signal_in_register_model_leaves_nothing_behind(endpoint, engines):
    class Interrupts(dict):
        def __getitem__(self, name):
            signal.raise_signal(signal.SIGINT)
            return super().__getitem__(name)

    with bascule.Sender(endpoint) as sender:
        with pytest.raises(KeyboardInterrupt):
            sender.register_model(Interrupts(a=numpy.ones(3)))
        with pytest.raises(bascule.BasculeError, match="no model is registered"):
            sender.send()
        sender.register_model({"a": numpy.full(3, 3.0)})
        engine = engines(endpoint)
        engine.ask("follow")
        sender.wait_for_workers(1)
        assert sender.send().complete
        assert engine.ask("weights")["weights"] == contents({"a": numpy.full(3, 3.0)})


def test_what_is_acknowledged_is_what_weights_shows(endpoint):
    """Signals interrupt commit() at random moments."""
    process = python("""
    import random, signal, sys, threading, time, numpy, bascule
    class Stop(Exception): pass
    def flips():
        while not done:
            receiver.commit()
    def stop(_, frame):  # raises only within flips(), which catches it
        while frame is not None and frame.f_code is not flips.__code__:
            frame = frame.f_back
        if frame is not None:
            raise Stop
    signal.signal(signal.SIGALRM, stop)
    value = numpy.zeros(4)
    sender = bascule.Sender(sys.argv[1])
    sender.register_model({"a": value})
    receiver = bascule.Receiver(sys.argv[1], worker="w")
    sender.wait_for_workers(1)
    def train():
        for step in range(1, 200):
            value[:] = step
            assert sender.send().complete
        done.append(True)
    done = []
    thread = threading.Thread(target=train)
    thread.start()
    while not done:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 1e-3))
        try:
            flips()
        except Stop:
            pass
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    print(sender.version, receiver.weights()["a"][0])
    """, endpoint)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out == "199 199.0\n"


def test_a_sender_is_closed_while_another_thread_waits(endpoint, model):
    sender = bascule.Sender(endpoint)
    sender.register_model(model)
    errors = []

    def wait():
        try:
            sender.wait_for_workers(1, timeout=100)
        except bascule.BasculeError as error:
            errors.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    sender.close()
    thread.join(PATIENCE)
    assert errors == ["CANCELLED"]


def _spawned(endpoint, versions, queue):
    with bascule.Receiver(endpoint, worker="spawned") as receiver:
        for _ in range(versions):
            version = receiver.take()
            queue.put((version, contents(receiver.weights())))
            receiver.finish()


def test_a_spawned_process_receives(endpoint, model):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=_spawned, args=(endpoint, 3, queue))
    process.start()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        for version in range(1, 4):
            model["a"] += 1
            assert sender.send().complete
            assert queue.get(timeout=PATIENCE) == (version, contents(model))
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.parametrize("ends", ["pass", "sender.send_async()", "raise SystemExit(0)", "import gc; gc.collect()",
                                  "keep = receiver.weights(); import builtins; builtins.kept = keep, sender, receiver"])
def test_an_interpreter_ends_with_both_alive(ends, endpoint):
    process = python(TRAINER + f"""
    receiver = bascule.Receiver(sys.argv[1], worker="w")
    sender.wait_for_workers(1)
    sender.send_async(); receiver.take(); receiver.finish(); sender.wait_async()
    print("served", flush=True)
    {ends}
    """, endpoint)
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, err, process.returncode) == ("served\n", "", 0)


def test_an_engine_serves_on_behind_a_killed_trainer_and_takes_from_the_next(endpoint, engines):
    engine = engines(endpoint)
    engine.ask("follow")
    kept = None
    for _ in range(2):
        trainer = python(TRAINER + """
    sender.wait_for_workers(1)
    print(sender.send().complete, flush=True)
    sender.send_async()
    time.sleep(100)
        """, endpoint)
        assert trainer.stdout.readline() == "True\n", trainer.communicate()[1]
        trainer.kill()
        trainer.communicate(timeout=PATIENCE)
        seen = engine.ask("weights")["weights"]
        assert kept in (None, seen)
        kept = seen


def test_an_engine_that_is_killed_is_named_and_its_next_start_is_served(endpoint, engines, model):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        first, other = engines(endpoint, "first"), engines(endpoint, "other")
        other.ask("follow")
        sender.wait_for_workers(2)
        sender.send_async()
        first.kill()
        report = sender.wait_async()
        states = {worker.worker: worker.state for worker in report.workers}
        assert states == {"first": "evicted", "other": "serving"} and not report.complete
        engines(endpoint, "first").ask("follow")
        sender.wait_for_workers(2)
        assert sender.send().complete


def test_an_engine_of_another_model_is_refused_by_the_tensors_name(endpoint, model, tmp_path):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        target = bascule.Target("c", numpy.zeros(3, numpy.float32))
        with bascule.Receiver(endpoint, worker="w", targets=[target]) as receiver:
            with pytest.raises(bascule.BasculeError, match="c"):
                receiver.wait_ready(10)
            with pytest.raises(TimeoutError, match="refused"):
                sender.wait_for_workers(1, 0.5)
