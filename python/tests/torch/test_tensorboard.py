"""metrics.jsonl in TensorBoard, read back by TensorBoard. run/ holds the first lines of a run of bascule-train."""

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
    """What TensorBoard shows: by name, the value of each step."""
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
    following.start()  # before there is a run

    def wait_for(wanted):
        for _ in range(10 * PATIENCE):
            if logdir.exists() and shown(logdir).get("reward_mean") == wanted:
                return
            stop.wait(0.1)
        assert shown(logdir).get("reward_mean") == wanted

    with file.open("w") as out:
        out.write('{"step": 1, "reward_mean": 0.25}\n{"step": 2, "reward')
        out.flush()
        wait_for({1: 0.25})  # a line that is not whole yet does not count
        out.write('_mean": 0.5}\n{"step": 3, "reward_mean": 0.75}\n')
    wait_for({1: 0.25, 2: 0.5, 3: 0.75})
    resumed = run / "resumed"
    resumed.write_text('{"step": 1, "reward_mean": 0.25}\n{"step": 2, "reward_mean": 0.125}\n')
    shutil.move(resumed, file)  # as bascule-train --resume does
    wait_for({1: 0.25, 2: 0.125})
    stop.set()
    following.join(PATIENCE)
    assert written == [5]


def test_what_is_no_metrics_is_named(tmp_path):
    with pytest.raises(bascule.BasculeError, match="expected metrics.jsonl of a run"):
        tensorboard.follow(str(tmp_path), str(tmp_path / "logs"), once=True)
    for text, message in (("no\n", "expected a JSON object a line, found b'no"), ('{"a": 1}\n', 'number as "step"')):
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(bascule.BasculeError, match=message):
            tensorboard.follow(str(tmp_path), str(tmp_path / "logs"), once=True)
