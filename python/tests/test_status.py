"""observe(), and the programs that use it."""

import subprocess
import sys

import numpy
import pytest
from engine_contents import contents

import bascule
from bascule import doctor, status


def test_an_endpoint_is_seen_from_outside(endpoint, engines):
    model = {"a": numpy.arange(5.0)}
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        engine = engines(endpoint)
        engine.ask("follow")
        sender.wait_for_workers(1)
        report = sender.send()
        seen = bascule.observe(endpoint)
        assert (seen.scheme, seen.sender, seen.version, seen.wrong) == ("shm", True, 1, [])
        assert [(worker.worker, worker.state, worker.serving) for worker in seen.workers] == [
            ("engine-0", "serving", 1)]
        assert report.digest in [slot.digest for slot in seen.slots if slot.check == "verified"]
        lines = []
        assert status.run(endpoint, lines.append) == 0
        assert "worker engine-0" in "\n".join(lines) and contents(model) == engine.ask("weights")["weights"]


def test_where_nothing_is_it_says_so(endpoint):
    with pytest.raises(bascule.BasculeError) as error:
        bascule.observe(endpoint)
    assert error.value.code in ("NOT_FOUND", "UNAVAILABLE")
    with pytest.raises(bascule.BasculeError, match="smh"):
        bascule.observe("smh:///x")


def test_the_doctor_finds_nothing_wrong_here_and_what_is_wrong_elsewhere(monkeypatch):
    lines = []
    assert doctor.run(lines.append) == 0, lines
    assert any("a send of 16 MiB to another process" in line for line in lines)
    monkeypatch.setattr(doctor, "_LEAST_DESCRIPTORS", 1 << 40)
    assert doctor.run(lines.append) == 1
    assert any(line.startswith("WRONG  open files") for line in lines)


def test_a_reader_that_leaves_ends_the_doctor_without_a_word():
    doctor = subprocess.Popen([sys.executable, "-m", "bascule", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    doctor.stdout.close()
    assert doctor.stderr.read() == b""
    doctor.stderr.close()
    assert doctor.wait(60) == 1
