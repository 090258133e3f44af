"""`python -m bascule send` and status, with real files and engines."""

import re
import subprocess
import sys

import pytest
import torch

import bascule
from bascule import checkpoint

safetensors = pytest.importorskip("safetensors.torch")


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "bascule", *map(str, arguments)], capture_output=True, text=True,
                          timeout=100)


def test_a_checkpoint_in_two_files_reaches_an_engine(endpoint, tmp_path):
    torch.manual_seed(5)
    tensors = {f"layers.{i}.weight": torch.randn(3, i + 1).bfloat16() for i in range(4)}
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for number, names in enumerate((list(tensors)[:2], list(tensors)[2:])):
        safetensors.save_file({name: tensors[name] for name in names}, folder / f"model-{number}.safetensors")
    engine = subprocess.Popen([sys.executable, "-c", """if True:
        import sys, torch, bascule
        receiver = bascule.Receiver(sys.argv[1], worker="w")
        receiver.take(timeout=60)
        print({name: tensor.float().sum().item() for name, tensor in receiver.weights().items()})
        receiver.finish()
        """, endpoint], stdout=subprocess.PIPE, text=True)
    sent = program("send", folder, "--sync", endpoint)
    assert sent.returncode == 0, sent
    assert re.search(r"^w: serving\nversion 1: \d+ bytes in [\d.]+ ms\n$", sent.stdout)
    out, _ = engine.communicate(timeout=60)
    assert eval(out) == {name: tensor.float().sum().item() for name, tensor in tensors.items()}


def test_what_is_no_checkpoint_is_named(endpoint, tmp_path):
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(b"no such thing")
    (tmp_path / "empty").mkdir()
    for path, text in ((tmp_path / "nothing", "found nothing"), (tmp_path / "empty", "found none"), (torn, "torn")):
        sent = program("send", path, "--sync", endpoint)
        assert sent.returncode == 1 and "Traceback" not in sent.stderr
        assert re.search(rf"^bascule: .*{text}", sent.stderr), sent.stderr


def test_a_tensor_that_the_index_names_and_no_file_has_is_named_before_anything_is_sent(tmp_path):
    safetensors.save_file({"a": torch.ones(2)}, tmp_path / "model-1.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}')
    with pytest.raises(bascule.BasculeError, match="model-1.safetensors: expected the tensor b, which") as error:
        checkpoint.send(str(tmp_path), "no endpoint", workers=0)
    assert error.value.code == "DATA_LOSS"


@pytest.mark.parametrize("path, text", [(b"x", "checkpoint: expected a path, found b'x'"), ("x" * 5000, "too long"),
                                        (None, "checkpoint: expected a path, found None"), ("", "an empty path")])
def test_what_is_no_path_is_refused_by_name(path, text):
    with pytest.raises(bascule.BasculeError, match=text):
        checkpoint.send(path, "no endpoint")


def test_an_index_says_which_files_are_the_checkpoints(endpoint, tmp_path):
    weights = {"a": torch.ones(2), "b": torch.ones(3)}
    safetensors.save_file({"a": weights["a"]}, tmp_path / "model-1.safetensors")
    safetensors.save_file(weights, tmp_path / "consolidated.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}')
    sent = program("send", tmp_path, "--sync", endpoint)
    assert sent.returncode == 1 and "model-2.safetensors: expected this file, which model.saf" in sent.stderr
    safetensors.save_file({"b": weights["b"]}, tmp_path / "model-2.safetensors")
    waits = program("send", tmp_path, "--sync", endpoint, "--timeout", 0.1)  # it gets as far as waiting for workers
    assert waits.returncode == 1 and "consolidated" not in waits.stderr and "worker" in waits.stderr
    for text in ("[]", '{"weight_map": 1}', '{"weight_map": {"a": 1}}', "no"):
        index.write_text(text)
        sent = program("send", tmp_path, "--sync", endpoint)
        assert sent.returncode == 1 and f"{index}: expected" in sent.stderr and "Traceback" not in sent.stderr


def test_of_a_whole_file_and_others_the_whole_one_is_sent(endpoint, tmp_path):
    for name in ("model", "consolidated"):
        safetensors.save_file({"a": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    waits = program("send", tmp_path, "--sync", endpoint, "--timeout", 0.1)
    assert "worker" in waits.stderr and "also in" not in waits.stderr


def test_a_file_or_a_tensor_that_cannot_be_sent_is_named(endpoint, tmp_path):
    (tmp_path / "torn").mkdir()
    safetensors.save_file({"a": torch.ones(2)}, tmp_path / "torn" / "x.safetensors")
    (tmp_path / "torn" / "y.safetensors").write_bytes(b"no such thing")
    safetensors.save_file({"a": torch.ones(2, dtype=torch.uint8)}, tmp_path / "six.safetensors")
    six = (tmp_path / "six.safetensors").read_bytes().replace(b'"U8"', b'"F6"')
    (tmp_path / "six.safetensors").write_bytes(six)
    for path, text in ((tmp_path / "torn", "torn/y.safetensors: "), ("", "found an empty path"),
                       (tmp_path / "six.safetensors", "six.safetensors: ")):
        sent = program("send", path, "--sync", endpoint)
        assert sent.returncode == 1 and text in sent.stderr and "Traceback" not in sent.stderr, sent.stderr


def test_status_of_an_endpoint(endpoint):
    with bascule.Sender(endpoint) as sender:
        sender.register_model({"a": torch.randn(3)})
        sender.send()
        seen = program("status", endpoint)
        assert seen.returncode == 0 and "version 1" in seen.stdout and "verified" in seen.stdout
    assert program("status", endpoint + "-not").returncode == 1
