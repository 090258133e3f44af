"""Real vLLM with real weights: it generates the same greedy tokens as transformers with these weights."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tiny

import bascule

HERE = Path(__file__).parent
PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine
BACKEND = {"backend": "bascule"}


@pytest.fixture(scope="module")
def in_process(start_engine, checkpoint):
    """An engine within its user's process, which calls vLLM's methods."""
    return start_engine({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}, model=checkpoint,
                        weight_transfer_config=BACKEND).started()


def update(engine, sender, version):
    """Sends while the engine updates; returns the report and the engine's answer."""
    sender.send_async()
    said = engine.ask("update", version=version)
    return sender.wait_async(PATIENCE), said


def test_an_engine_is_driven_by_the_verbs_of_vllm(in_process, model, endpoint):
    assert in_process.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        for version in (1, 2, 3):
            tiny.train(model, version)
            report, said = update(in_process, sender, version)
            assert said is None and report.complete and report.version == version
            assert in_process.generate() == tiny.greedy(model)


def test_a_tensor_that_the_model_does_not_have_is_named_to_both_ends(in_process, model, endpoint):
    tiny.train(model, 4)
    tensors = dict(model.named_parameters())
    wrong = {**tensors, "model.layers.1.mlp.wrong_proj.weight": tensors["model.norm.weight"]}
    assert in_process.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(wrong)
        sender.wait_for_workers(1)
        report, said = update(in_process, sender, 1)
        assert "wrong_proj" in said["error"]
        assert not report.complete and "wrong_proj" in str(report.workers[0].error)
        assert "wrong_proj" in in_process.ask("update", version=1)["error"]  # it came again
    loads_right_ones(in_process, model, endpoint + "-right")


@pytest.mark.parametrize("left_out, named", [("mlp.down_proj.weight", "mlp.down_proj.weight"),
                                             ("self_attn.k_proj.weight", "self_attn.qkv_proj")])
def test_a_tensor_that_does_not_come_is_named_to_both_ends(in_process, model, endpoint, left_out, named):
    tiny.train(model, 5)
    tensors = dict(model.named_parameters())
    del tensors["model.layers.0." + left_out]
    assert in_process.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(tensors)
        sender.wait_for_workers(1)
        report, said = update(in_process, sender, 1)
        assert "model.layers.0." + named in said["error"]
        assert "model.layers.0." + named in str(report.workers[0].error)
    loads_right_ones(in_process, model, endpoint + "-right")


def test_a_tensor_of_another_shape_is_refused(in_process, model, endpoint):
    tiny.train(model, 6)
    tensors = dict(model.named_parameters())
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = tensors[name][:, :100].contiguous()
    assert in_process.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(tensors)
        sender.wait_for_workers(1)
        report, said = update(in_process, sender, 1)
        assert said["error"] and not report.complete
    loads_right_ones(in_process, model, endpoint + "-right")


def loads_right_ones(engine, model, endpoint):
    assert engine.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        report, said = update(engine, sender, 1)
        assert said is None and report.complete
        assert engine.generate() == tiny.greedy(model)


def test_an_update_without_a_version_fails_in_time_and_leaves_the_weights(in_process, model, endpoint):
    before = in_process.generate()
    assert in_process.ask("join", endpoint=endpoint) is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        assert "error" in in_process.ask("update", version=1, timeout=0.2)
        assert in_process.generate() == before


def test_an_engine_is_driven_by_the_worker_extension(start_engine, checkpoint, model, endpoint):
    engine = start_engine({}, model=checkpoint, worker_extension_cls="bascule.vllm.WorkerExtension").started()
    assert engine.ask("rpc", method="bascule_join", endpoint=endpoint, worker="w") == ["w"]
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        assert sender.wait_for_workers(1) == ["w"]
        for version in (1, 2, 3):
            tiny.train(model, version)
            sender.send_async()
            assert engine.ask("rpc", method="bascule_take") == [version]
            assert sender.wait_async(PATIENCE).complete
            assert engine.ask("rpc", method="bascule_take", timeout=0) == [None]
            assert engine.ask("reset_prefix_cache") is True
            assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_an_idle_engine_follows_trainers_that_die_and_is_started_again(start_engine, checkpoint, model, endpoint):
    def start():
        return start_engine({"BASCULE_ENDPOINT": endpoint, "BASCULE_WORKER": "engine-0"}, model=checkpoint,
                            weight_transfer_config=BACKEND)

    engine = start()
    trainer = subprocess.run([sys.executable, HERE / "dying_trainer.py", endpoint, checkpoint], timeout=3 * PATIENCE)
    engine.started()
    assert trainer.returncode == -9
    tiny.train(model, 1)
    assert engine.generate() == tiny.greedy(model)  # the version before the one that never became whole
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        assert sender.wait_for_workers(1) == ["engine-0"]
        for version in (3, 4, 5):
            tiny.train(model, version)
            report = sender.send()
            assert report.complete
            assert engine.generate() == tiny.greedy(model)
            assert engine.ask("weight_version") == str(report.version)
        engine.kill()
        engine = start().started()
        assert sender.wait_for_workers(1, PATIENCE) == ["engine-0"]
        tiny.train(model, 6)
        assert sender.send().complete
        assert engine.generate() == tiny.greedy(model)
    engine.kill()


@pytest.mark.parametrize("options", [{"tensor_parallel_size": 2, "weight_transfer_config": BACKEND},
                                     {"worker_extension_cls": "bascule.vllm.WorkerExtension"}],
                         ids=["two_ranks", "by_the_extension"])
def test_an_idle_engine_follows(start_engine, checkpoint, model, endpoint, options):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, **options).started()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(options.get("tensor_parallel_size", 1), PATIENCE)
        for version in (1, 2):
            tiny.train(model, version)
            report = sender.send()
            assert report.complete
            assert engine.generate() == tiny.greedy(model)
            assert engine.ask("weight_version") == str(report.version)
    engine.kill()


@pytest.mark.parametrize("options", [{}, {"async_scheduling": True}, {"tensor_parallel_size": 2}], ids=str)
def test_each_token_of_a_request_in_flight_comes_from_the_version_that_vllm_says(start_engine, checkpoint, model,
                                                                                  endpoint, options):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND,
                          max_model_len=256, **options).started()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(options.get("tensor_parallel_size", 1), PATIENCE)
        version, spans = 0, []
        while len(spans) < 3:  # several versions in one answer
            engine.begin("generate_across_versions", prompt=tiny.PROMPT, tokens=240)
            answer = []
            answering = threading.Thread(target=lambda: answer.extend(engine.answer()))
            answering.start()
            while answering.is_alive():
                version += 1
                tiny.train(model, version)
                report = sender.send()
                assert report.complete and report.version == version
            tokens, spans = answer
    assert len(tokens) == 240 and spans[0][1] == 0 and spans[-1][2] == 240
    for version, begin, end in spans:
        if version == "default":
            continue  # of the checkpoint's weights
        tiny.train(model, int(version))
        assert tokens[begin:end] == tiny.greedy_next(model, tokens)[begin:end], (version, spans)
    engine.kill()


def test_an_engine_that_sleeps_takes_no_version_until_it_wakes_up(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND).started()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        assert engine.ask("sleep") is None
        tiny.train(model, 1)
        sender.send_async()
        with pytest.raises(TimeoutError):
            sender.wait_async(1.0)
        assert engine.ask("weight_version") == "default"
        assert engine.ask("wake_up") is None
        assert sender.wait_async(PATIENCE).complete
        assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_a_resume_of_the_users_does_not_bring_weights_that_failed_to_use(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND).started()
    tiny.train(model, 1)
    tensors = dict(model.named_parameters())
    assert engine.ask("pause") is None
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**tensors, "model.wrong": tensors["model.norm.weight"].detach().clone()})
        sender.wait_for_workers(1)
        assert not sender.send().complete
    assert engine.ask("resume") is None
    engine.begin("generate", prompt=tiny.PROMPT, tokens=tiny.TOKENS)
    tokens = []
    answering = threading.Thread(target=lambda: tokens.extend(engine.answer()))
    answering.start()
    answering.join(1.0)
    assert answering.is_alive()  # it waits
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        assert sender.send().complete
        answering.join(PATIENCE)
        assert tokens == tiny.greedy(model)
    engine.kill()


def test_a_rank_that_failed_alone_is_brought_to_the_version_of_the_others(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND,
                          tensor_parallel_size=2, worker_extension_cls="failing_rank.Extension").started()
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(2)
        tiny.train(model, 1)
        assert sender.send().complete
        tiny.train(model, 2)
        report = sender.send()
        assert not report.complete and "rank 1 is out of memory" in str([each.error for each in report.workers])
        assert engine.generate() == tiny.greedy(model)  # it waits until both ranks have version 2
        tiny.train(model, 3)
        sender.wait_for_workers(2, PATIENCE)
        assert sender.send().complete
        assert engine.generate() == tiny.greedy(model)
    engine.kill()


def test_a_following_engine_generates_nothing_with_weights_that_failed(start_engine, checkpoint, model, endpoint):
    engine = start_engine({"BASCULE_ENDPOINT": endpoint}, model=checkpoint, weight_transfer_config=BACKEND).started()
    tiny.train(model, 1)
    tensors = dict(model.named_parameters())
    with bascule.Sender(endpoint) as sender:
        sender.register_model({**tensors, "model.wrong": tensors["model.norm.weight"]})
        sender.wait_for_workers(1)
        report = sender.send()
        assert not report.complete and "'wrong'" in str(report.workers[0].error)
    engine.begin("generate", prompt=tiny.PROMPT, tokens=tiny.TOKENS)
    tokens = []
    answering = threading.Thread(target=lambda: tokens.extend(engine.answer()))
    answering.start()
    answering.join(1.0)
    assert answering.is_alive()  # it waits
    with bascule.Sender(endpoint) as sender:
        sender.register_model(model)
        sender.wait_for_workers(1)
        assert sender.send().complete
        answering.join(PATIENCE)
        assert tokens == tiny.greedy(model)
    engine.kill()
