"""Models that are registered by specs, and streamed tensor by tensor."""

import os
import subprocess
import sys

import numpy
import pytest
from engine_contents import contents

import bascule

SPECS = [bascule.TensorSpec("a", "float32", (3, 4)), bascule.TensorSpec("b", numpy.int64, (5,)),
         bascule.TensorSpec("module.c", "float16", ())]


def tensors(version):
    yield "b", numpy.full(5, version)
    yield "module.c", numpy.float16(version)[...]
    yield "a", numpy.arange(24, dtype=numpy.float32).reshape(3, 8)[:, ::2] * version


def expected(version):
    return contents({name.removeprefix("module."): tensor for name, tensor in tensors(version)})


@pytest.fixture
def sender(endpoint):
    with bascule.Sender(endpoint) as sender:
        sender.register_model(SPECS)
        yield sender


def test_each_version_is_streamed_whole(endpoint, engines, sender):
    engine = engines(endpoint)
    engine.ask("follow")
    sender.wait_for_workers(1)
    for version in range(1, 4):
        assert sender.stream(tensors(version)).complete
        assert engine.ask("weights") == {"version": version, "weights": expected(version)}
    model = {name.removeprefix("module."): tensor for name, tensor in tensors(9)}
    assert sender.send(model).complete
    assert engine.ask("weights")["weights"] == expected(9)


def test_what_goes_wrong_aborts_the_version_and_no_other(endpoint, engines, sender):
    engine = engines(endpoint)
    engine.ask("follow")
    sender.wait_for_workers(1)
    sender.stream(tensors(1))

    def broken(stop):
        for name, tensor in tensors(2):
            if name == "a":
                yield stop
            yield name, tensor

    for stop, text in ((("x", numpy.zeros(1)), "tensor x was not registered"),
                       (("b", numpy.zeros(5, "i8")), "tensor b was given twice"),
                       (("a", numpy.zeros((4, 3), "f4")), r"tensor a: it has the shape \[4, 3\]; it was registered as \[3, 4\]"),
                       (("a", numpy.zeros((3, 4), "i8")), "tensor a: it is int64; it was registered as float32")):
        with pytest.raises(bascule.BasculeError, match=text):
            sender.stream(broken(stop))
    with pytest.raises(bascule.BasculeError, match="1 registered tensors did not come, such as a"):
        sender.stream(list(tensors(2))[:2])

    def fails():
        yield from list(tensors(2))[:1]
        raise OSError("the gather failed")

    with pytest.raises(OSError, match="the gather failed"):
        sender.stream(fails())
    assert engine.ask("weights") == {"version": 1, "weights": expected(1)}
    report = sender.stream(tensors(3))
    assert report.complete
    assert engine.ask("weights") == {"version": report.version, "weights": expected(3)}


def test_specs_need_weights(sender):
    with pytest.raises(bascule.BasculeError, match="specs alone") as error:
        sender.send()
    assert error.value.code == "FAILED_PRECONDITION"
    mixed = [SPECS[0], bascule.TensorSpec("far", "int8", (1,), device="cuda:1")]
    for specs, text in ((mixed, "a and far name different devices"),
                        ([bascule.TensorSpec("far", "int8", (1,), device="cuda:99")], "driver|device|GPU"),
                        ([bascule.TensorSpec("far", "int8", (1,), device="tpu")], "device: expected")):
        with bascule.Sender(sender._endpoint + "1") as other:
            with pytest.raises(bascule.BasculeError, match=text):
                other.register_model(specs)
    for spec, text in ((("a", "f4", (1,)), "tensor a: no tensors of the type f4"), (("a", "float32", 3), "tensor a: .*shape"),
                       (("a", "float32", (2.5,)), "tensor a: .*shape"), (("a", "float32", (2**70,)), "tensor a: .*shape"),
                       ((5, "float32", (3,)), "tensor 5: expected a name")):
        with pytest.raises(bascule.BasculeError, match=text):
            bascule.Sender(sender._endpoint + "3").register_model([bascule.TensorSpec(*spec)])
    with pytest.raises(bascule.BasculeError, match="tensor 5: expected a name"):
        sender.stream([(5, numpy.zeros(1))])
    with pytest.raises(bascule.BasculeError, match="no tensors of the type complex128"):
        bascule.Sender(sender._endpoint + "2").register_model([bascule.TensorSpec("a", "complex128", (1,))])


def test_numpy_arrays_are_sent_and_shown_while_another_thread_imports_torch(endpoint, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import gate; gate.reached.set(); gate.go.wait(60)")
    (tmp_path / "gate.py").write_text("import threading\nreached, go = threading.Event(), threading.Event()")
    done = subprocess.run([sys.executable, "-c", """if True:
        import importlib, sys, threading
        import gate, numpy, bascule
        importing = threading.Thread(target=importlib.import_module, args=["torch"], daemon=True)
        importing.start()
        gate.reached.wait()
        def engine(receiver):
            receiver.take()
            taken.append(receiver.weights())
            receiver.finish()
        taken, tensor = [], numpy.arange(3, dtype="f4")
        with bascule.Sender(sys.argv[1]) as sender, bascule.Receiver(sys.argv[1], worker="w") as receiver:
            sender.register_model([bascule.TensorSpec("a", "float32", [3])])
            sender.wait_for_workers(1)
            thread = threading.Thread(target=engine, args=[receiver])
            thread.start()
            assert sender.stream([("a", tensor)]).complete
            thread.join()
            assert type(taken[0]["a"]) is numpy.ndarray and (taken[0]["a"] == tensor).all(), taken
        gate.go.set()
        importing.join()
        """, endpoint], env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}, timeout=100,
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
