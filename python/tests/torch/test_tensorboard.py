"""metrics.jsonl in TensorBoard, read back by TensorBoard. run/ holds the first lines of a bascule-train run."""

import json
import shutil
import threading
from pathlib import Path

import pytest

import bascule
from bascule import tensorboard
from bascule.__main__ import main

RUN = Path(__file__).parent / "run"
PATIENCE = 60


def shown(logdir):
    """What TensorBoard shows: each step's value, by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logdir)).Reload()
    return {name: {each.step: each.value for each in events.Scalars(name)} for name in events.Tags()["scalars"]}


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_number_of_each_step_is_shown(tmp_path, capsys):
    assert main(["tensorboard", str(RUN), "--logdir", str(tmp_path), "--once"]) == 0
    assert "3 steps" in capsys.readouterr().out
    found = shown(tmp_path)
    lines = lines_of(RUN / "metrics.jsonl")
    assert found["reward_mean"] == {1: pytest.approx(lines[1]["reward_mean"]), 2: pytest.approx(lines[2]["reward_mean"])}
    assert found["eval_reward"] == {0: pytest.approx(lines[0]["eval_reward"])}
    assert found["seconds/train"][2] == pytest.approx(lines[2]["seconds"]["train"])
    assert found["send/workers/engine/seconds"][1] == pytest.approx(lines[1]["send"]["workers"][0]["seconds"])
    assert found["engines/127.0.0.1:8071/tokens"][1] == 1536


def test_a_run_is_followed_as_it_grows_and_as_it_goes_on_behind_an_earlier_step(tmp_path):
    run, logdir = tmp_path / "run", tmp_path / "logs"
    run.mkdir()
    file = run / "metrics.jsonl"
    stop, written = threading.Event(), []
    following = threading.Thread(
        target=lambda: written.append(tensorboard.follow(str(run), str(logdir), stopped=stop.is_set)))
    following.start()  # before the run exists

    def wait_for(wanted):
        for _ in range(10 * PATIENCE):
            if logdir.exists() and shown(logdir).get("reward_mean") == wanted:
                return
            stop.wait(0.1)
        assert shown(logdir).get("reward_mean") == wanted

    with file.open("w") as out:
        out.write('{"step": 1, "reward_mean": 0.25}\n{"step": 2, "reward')
        out.flush()
        wait_for({1: 0.25})  # an incomplete line does not count yet
        out.write('_mean": 0.5}\n{"step": 3, "reward_mean": 0.75}\n')
    wait_for({1: 0.25, 2: 0.5, 3: 0.75})
    resumed = run / "resumed"
    resumed.write_text('{"step": 1, "reward_mean": 0.25}\n{"step": 2, "reward_mean": 0.125}\n')
    shutil.move(resumed, file)  # as bascule-train --resume does
    wait_for({1: 0.25, 2: 0.125})
    stop.set()
    following.join(PATIENCE)
    assert written == [5]


def test_a_folder_that_comes_later_is_followed(tmp_path):
    stop, written = threading.Event(), []
    following = threading.Thread(
        target=lambda: written.append(tensorboard.follow(str(tmp_path / "run"), str(tmp_path / "logs"), stopped=stop.is_set)))
    following.start()
    stop.wait(0.7)  # by now it has looked
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "reward_mean": 0.25}\n')
    for _ in range(10 * PATIENCE):
        if (tmp_path / "logs").exists() and shown(tmp_path / "logs"):
            break
        stop.wait(0.1)
    stop.set()
    following.join(PATIENCE)
    assert written == [1]


def test_what_is_no_metrics_is_named_by_its_line(tmp_path):
    with pytest.raises(bascule.BasculeError, match="expected metrics.jsonl of a run"):
        tensorboard.follow(str(tmp_path), str(tmp_path / "logs"), once=True)
    huge = "1" + 400 * "0"
    for text in ("no", '{"a": 1}', '{"step": true}', '{"step": 1.5}', f'{{"step": {2**63}}}', "[1]",
                 f'{{"step": 1, "a": {huge}}}', '{"step": 1, "a": ' + 100000 * "[" + 100000 * "]" + "}"):
        (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n\n' + text + "\n")
        with pytest.raises(bascule.BasculeError, match=r"metrics.jsonl:3: expected an object with a whole number") as refused:
            tensorboard.follow(str(tmp_path), str(tmp_path / "logs"), once=True)
        assert refused.value.code == "DATA_LOSS"


def test_lines_without_a_word_and_workers_without_a_text_are_taken(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0, "a": 1}\n\n\0\0\0\n{"step": 1, "send": [{"worker": 7, "b": 2}]}\n')
    assert tensorboard.follow(str(tmp_path), str(tmp_path / "logs"), once=True) == 2
    assert shown(tmp_path / "logs") == {"a": {0: 1}, "send/7/worker": {1: 7}, "send/7/b": {1: 2}}


def test_a_logdir_that_is_a_file_is_named(tmp_path):
    (tmp_path / "logs").write_text("")
    with pytest.raises(bascule.BasculeError, match="logs"):
        tensorboard.follow(str(RUN), str(tmp_path / "logs"), once=True)
