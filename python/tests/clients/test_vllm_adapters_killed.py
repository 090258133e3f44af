"""Adapters and a base model that change while a vLLM server answers, and whose trainers and engine core are killed."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest
import tiny

import bascule

pytest.importorskip("vllm")
pytest.importorskip("peft")
from adapted import adapted, asking, expected, next_tokens, train  # noqa: E402
from transformers import Qwen2ForCausalLM  # noqa: E402

HERE = Path(__file__).parent
PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine
BUSY = "?flip_timeout=1m"  # a busy machine may compute longer than 5 s between two looks for a version
LONG, STREAMED = 40, 240  # tokens
ATTEMPTS = 20  # a stream may end before the version is sent: then both start again
MOMENTS = ["writing", 0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08]  # seconds, while a send takes about 0.03


class Run:
    """A server's options and its endpoints, and the server. `brief` has no patience with requests of old versions."""

    def __init__(self, serve, folder):
        self.folder, self.hold, self.base = folder, folder / "hold", f"shm://{folder}/base{BUSY}"
        names = {"math": "", "code": "", "brief": "&load_timeout=100ms"}
        self._options = {
            "BASCULE_ENDPOINT": self.base, "HOLD": str(self.hold),
            "BASCULE_ADAPTERS": ",".join(f"{name}={self.at(name)}{more}" for name, more in names.items()),
            "OMP_NUM_THREADS": "1",  # the test also computes
            "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])}
        self._serve = serve
        self.start()

    def start(self):
        self.server = self._serve(self._options, "--enable-lora", "--max-lora-rank", "16", "--max-loras", "8",
                                  "--max-model-len", "256", "--worker-extension-cls", "held_adapter.Extension")
        self.server.wait_until_up(PATIENCE)

    def at(self, name):
        return f"shm://{self.folder}/{name}{BUSY}"

    @contextmanager
    def sending(self, name, model):
        """A sender of an adapter, which the engine has joined."""
        with bascule.Sender(self.at(name)) as sender:
            sender.register_adapter(model)
            sender.wait_for_workers(1, PATIENCE)
            yield sender


@pytest.fixture(scope="module")
def run(serve_for_all, tmp_path_factory):
    return Run(serve_for_all, tmp_path_factory.mktemp("run"))


def same(answer, wanted):
    (tokens, probabilities), (others, other_probabilities) = answer, wanted
    return tokens == others[:len(tokens)] and probabilities == pytest.approx(other_probabilities[:len(tokens)], abs=1e-3)


@contextmanager
def trainers_that_die(checkpoint):
    """Gives trainer(endpoint, seed, moment), which returns when it has died (dying_adapter_trainer.py)."""
    with subprocess.Popen([sys.executable, HERE / "dying_adapter_trainer.py", checkpoint], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        def trainer(*arguments):
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "-9\n"

        assert process.stdout.readline() == "ready\n"
        yield trainer


def test_trainers_that_are_killed_leave_whole_versions_only(run, checkpoint):
    moments = [*MOMENTS, str(run.hold)]
    model, kept, last = adapted(checkpoint), *(adapted(checkpoint, r=rank, target_modules="all-linear") for rank in (8, 4))

    def answers(model, seed):
        train(model, seed)
        return expected(model, tokens=LONG)

    seeds = [99, *(100 * number + each for number in range(1, len(moments) + 1) for each in (0, 1))]
    versions = [*(answers(model, seed) for seed in seeds), *(answers(last, seed) for seed in (1, 2, 3))]
    published = 1

    def generate():
        return run.server.generate_with_probabilities(model="math", max_tokens=LONG)

    def ask():
        first = max(published - 4, 0)  # a trainer's versions count as published before it starts
        answer = generate()
        assert any(same(answer, each) for each in versions[first:published]), (answer, first, published)

    def stream():
        tokens = list(run.server.stream(model="math", max_tokens=LONG))
        assert tokens in [each for each, _ in versions[:published]], tokens

    with run.sending("code", kept) as sender:
        other = answers(kept, 1)[0]
        assert sender.send().complete
    with run.sending("math", model) as sender:
        train(model, 99)
        assert sender.send().complete

    def stream_other():
        assert list(run.server.stream(model="code", max_tokens=LONG)) == other

    with trainers_that_die(checkpoint) as trainer, asking(ask, stream, stream_other):
        for number, moment in enumerate(moments, 1):
            published += 2
            trainer(run.at("math"), 100 * number, moment)
            if moment == moments[-1]:
                break
            answer = generate()
            assert any(same(answer, each) for each in versions[published - 2:published - (moment == "writing")])
        # The engine still loads the version of the dead trainer, while another trainer, of another rank, writes its own.
        with run.sending("math", last) as sender:
            for seed in (1, 2, 3):
                published += 1
                train(last, seed)
                sender.send_async()
                run.hold.unlink(missing_ok=True)
                report = sender.wait_async(PATIENCE)
                assert report.complete, report.why_incomplete
                assert same(generate(), versions[published - 1])
        Path(f"{run.hold}.held").unlink()
    assert run.server.get("/health") == 200


def test_a_stream_ends_with_its_own_version_or_goes_on_with_the_newest(run, checkpoint):
    model, version = adapted(checkpoint), 0

    def own(number, tokens):
        train(model, number)
        return next_tokens(model, tokens)

    with run.sending("brief", model) as sender:
        def send():
            nonlocal version
            version += 1
            train(model, version)
            report = sender.send()
            assert report.complete, report.why_incomplete

        def streamed_across(versions):
            """The first version of a stream, its tokens, and whether it lasted until `versions` more were served."""
            tokens, begun, first = [], threading.Event(), version

            def read():
                for token in run.server.stream(model="brief", max_tokens=STREAMED):
                    tokens.append(token)
                    begun.set()

            thread = threading.Thread(target=read)
            thread.start()
            assert begun.wait(PATIENCE)
            for _ in range(versions):
                send()
            lasted = thread.is_alive()
            answer = run.server.generate_with_probabilities(model="brief")
            train(model, version)
            assert same(answer, expected(model))
            thread.join(PATIENCE)
            assert len(tokens) == STREAMED
            return first, tokens, lasted

        send()
        send()
        for _ in range(ATTEMPTS):
            first, tokens, lasted = streamed_across(versions=1)
            assert tokens == own(first, tokens)
            if lasted:
                break
        assert lasted
        for _ in range(ATTEMPTS):
            first, tokens, lasted = streamed_across(versions=2)  # the second one waits for the stream, but not for long
            wanted, newest = own(first, tokens), own(version, tokens)
            changed = next((i for i, each in enumerate(tokens) if each != wanted[i]), STREAMED)
            assert tokens[changed:] == newest[changed:]
            if changed < STREAMED:
                break
        assert lasted and 0 < changed < STREAMED


def test_base_and_adapters_change_in_turns_and_at_once(run, checkpoint):
    sizes = {"math": {}, "code": {"r": 16, "target_modules": "all-linear", "use_rslora": True}}
    models = {"": Qwen2ForCausalLM.from_pretrained(checkpoint).eval(),  # the base model
              **{name: adapted(checkpoint, **more) for name, more in sizes.items()}}
    now, answers = dict.fromkeys(models, 0), []  # the versions that are published

    @functools.cache
    def over(name, base, version):
        """PEFT's model of an adapter's version over a version of the base model."""
        model = Qwen2ForCausalLM.from_pretrained(checkpoint).eval()
        if base:
            tiny.train(model, base)
        if name:
            model = adapted(model, **sizes[name])
            train(model, version)
        return model

    def named(name):
        return {"model": name} if name else {}

    def step(*names):
        for name in names:
            now[name] += 1
            (train if name else tiny.train)(models[name], now[name])
            senders[name].send_async()
        for name in names:
            report = senders[name].wait_async(PATIENCE)
            assert report.complete, report.why_incomplete
        for name in now:
            answer = run.server.generate_with_probabilities(**named(name))
            assert same(answer, expected(over(name, now[""], now[name] if name else 0))), (name, now)

    def ask(name):
        before = dict(now)
        tokens = list(run.server.stream(max_tokens=LONG, **named(name)))
        answers.append((name, tokens, before, dict(now)))

    def length(tokens, name, bases, version):
        """How many tokens an adapter's version generates, if the base model changes from one version to the next."""
        done = 0
        for base in bases:
            own = next_tokens(over(name, base, version), tokens)
            while done < len(tokens) and own[done] == tokens[done]:
                done += 1
        return done

    with run.sending("math", models["math"]) as math, run.sending("code", models["code"]) as code, \
            bascule.Sender(run.base) as base:
        base.register_model(models[""])
        base.wait_for_workers(1, PATIENCE)
        senders = {"": base, "math": math, "code": code}
        step("math", "code")
        for name in ("", "math", "", "code", "math", ""):
            step(name)
        with asking(*(functools.partial(ask, name) for name in now)):
            for names in (("", "math", "code"), ("code", "", "math"), ("math", "code", ""), ("",), ("math", "code")):
                step(*names)
    for name, tokens, before, after in answers:  # what is published now may be served already, or not yet
        bases = range(before[""] - 1, after[""] + 1)
        versions = range(before[name] - 1, after[name] + 1) if name else [0]
        assert LONG in [length(tokens, name, bases, each) for each in versions], (name, tokens, before, after)


def engine_core(server):
    """The id of its process."""
    found = subprocess.run(["ps", "-eo", "pid=,pgid=,args="], capture_output=True, text=True, check=True).stdout.splitlines()
    [core] = [line.split()[0] for line in found if line.split()[1] == str(server.process.pid) and "EngineCore" in line]
    return int(core)


def test_an_engine_core_that_is_killed_is_named_and_its_successor_gets_the_newest_versions(run, checkpoint):
    model, base = adapted(checkpoint), Qwen2ForCausalLM.from_pretrained(checkpoint).eval()
    tiny.train(base, 50)
    served = Qwen2ForCausalLM.from_pretrained(checkpoint)
    tiny.train(served, 50)
    served = adapted(served)

    def ask():
        with suppress(KeyError, OSError, HTTPException):  # an error instead of tokens, or no connection
            list(run.server.stream(model="math", max_tokens=STREAMED))

    with run.sending("math", model) as sender, bascule.Sender(run.base) as base_sender:
        base_sender.register_model(base)
        base_sender.wait_for_workers(1, PATIENCE)
        assert base_sender.send().complete
        train(model, 1)
        assert sender.send().complete
        run.hold.touch()
        train(model, 2)
        with asking(ask):
            sender.send_async()
            wait_until(Path(f"{run.hold}.held").exists)
            os.kill(engine_core(run.server), signal.SIGKILL)
            run.hold.unlink()
            report = sender.wait_async(PATIENCE)
            assert not report.complete and "said goodbye" in str(report.workers[0].error)
            assert run.server.process.wait(PATIENCE) is not None
        run.start()
        train(served, 2)
        wait_until(lambda: run.server.generate(model="math") == (200, expected(served)[0]))  # no send is needed for it
        for each in (model, served):
            train(each, 3)
        assert sender.send().complete
        assert same(run.server.generate_with_probabilities(model="math"), expected(served))


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
