"""Adapters that change while vLLM serves requests, over HTTP and in an engine with two ranks."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiny

import bascule

pytest.importorskip("vllm")
pytest.importorskip("peft")
import torch  # noqa: E402
from adapted import adapted, expected, train  # noqa: E402

PATIENCE = 240  # seconds, longer than anything healthy takes
LORA = {"enable_lora": True, "max_lora_rank": 16, "max_loras": 2, "max_model_len": 256}


def test_a_server_resolves_the_name_of_an_adapter_while_versions_change(serve, checkpoint, model, endpoint):
    base, wrapped = endpoint, adapted(checkpoint)
    server = serve({"BASCULE_ENDPOINT": base, "BASCULE_ADAPTERS": f"math={base}-math,idle={base}-idle"}, "--enable-lora",
                   "--max-lora-rank", "16", "--max-loras", "2")
    server.wait_until_up(PATIENCE)
    assert server.models()[-2:] == ["math", "idle"]
    status, text = server.generate(model="math")
    assert status == 503 and "adapter math has no version yet" in text
    wanted = {}
    with bascule.Sender(f"{base}-math") as sender:
        sender.register_adapter(wrapped)
        sender.wait_for_workers(1, PATIENCE)
        acknowledged = 0

        def ask():
            """A request, and the versions that may answer it: those that were the newest meanwhile."""
            first = acknowledged
            status, tokens = server.generate(model="math")
            assert status == 200, tokens
            return tokens, first, len(wanted)

        with ThreadPoolExecutor(4) as pool:
            answers = []
            for version in (1, 2, 3, 4, 5):
                train(wrapped, version)
                wanted[version] = expected(wrapped)[0]
                if version > 1:
                    answers += [pool.submit(ask) for _ in range(6)]
                assert sender.send().complete
                acknowledged = version
            assert ask()[0] == wanted[5]
            for tokens, first, last in [each.result(PATIENCE) for each in answers]:
                assert tokens in [wanted[version] for version in range(first, last + 1)]
        # The base model follows its own endpoint. The adapter then works on the new weights.
        tiny.train(model, 1)
        with bascule.Sender(base) as base_sender:
            base_sender.register_model(model)
            base_sender.wait_for_workers(1, PATIENCE)
            assert base_sender.send().complete
        assert server.generate() == (200, tiny.greedy(model))
        moved = adapted(model)
        moved.load_state_dict({name: tensor for name, tensor in wrapped.state_dict().items() if "lora_" in name}, strict=False)
        assert server.generate(model="math") == (200, expected(moved)[0])
        assert server.get("/health") == 200


@pytest.fixture
def changing(start_engine, checkpoint, endpoint):
    """changing(environment, options) starts an engine that follows `math`, and a sender of an adapter for it."""
    senders = []

    def start(environment, options, config=None, parameters="", ranks=1):
        engine = start_engine({"BASCULE_ADAPTERS": f"math={endpoint}{parameters}", **environment}, model=checkpoint,
                              **{**LORA, **options}).started()
        model = adapted(checkpoint, **(config or {}))
        senders.append(bascule.Sender(endpoint))
        senders[-1].register_adapter(model)
        senders[-1].wait_for_workers(ranks, PATIENCE)
        return engine, senders[-1], model

    yield start
    for sender in senders:
        sender.close()


def answering(engine, **arguments):
    """Starts a generation; returns what gives its answer."""
    engine.begin("generate_adapted", adapter="math", prompts=[tiny.PROMPT], **arguments)
    answer = []
    thread = threading.Thread(target=lambda: answer.extend(engine.answer()))
    thread.start()

    def result():
        thread.join(PATIENCE)
        return answer[0]

    return thread, result


@torch.no_grad()
def next_tokens(model, tokens):
    """For each of `tokens`, which follow the prompt, the token that PEFT would have generated in its place."""
    logits = model(torch.tensor([tiny.PROMPT + tokens])).logits[0]
    return logits.argmax(-1)[len(tiny.PROMPT) - 1:-1].tolist()


def test_a_running_request_ends_with_its_version_and_at_last_goes_on_with_the_newest(changing):
    engine, sender, model = changing({"BASCULE_ADAPTER_KEEP": "2"}, {}, parameters="?load_timeout=400ms")
    for version in (1, 2):
        train(model, version)
        assert sender.send().complete
    thread, result = answering(engine, tokens=240)  # with version 2
    train(model, 3)
    assert sender.send().complete
    assert thread.is_alive()
    tokens, _, reason = result()
    train(model, 2)
    assert reason is None and tokens == next_tokens(model, tokens)
    assert engine.ask("adapters")["math"]["moved_requests"] == 0

    thread, result = answering(engine, tokens=240)  # with version 3
    version = 3
    while thread.is_alive():
        version += 1
        train(model, version)
        assert sender.send().complete
    tokens, _, reason = result()
    assert reason is None and len(tokens) == 240
    moved = engine.ask("adapters")["math"]["moved_requests"]
    assert moved > 0
    done = 0
    for version in range(3, version + 1):  # a stretch of each version that it had
        train(model, version)
        own = next_tokens(model, tokens)
        while done < len(tokens) and own[done] == tokens[done]:
            done += 1
    assert done == len(tokens)
    engine.kill()


def test_all_ranks_serve_a_version_or_none(changing):
    engine, sender, model = changing({}, {"tensor_parallel_size": 2, "worker_extension_cls": "failing_adapter.Extension"},
                                     {"target_modules": "all-linear", "use_rslora": True}, ranks=2)
    train(model, 1)
    assert sender.send().complete
    [[tokens, _, _]] = engine.ask("generate_adapted", adapter="math", prompts=[tiny.PROMPT], tokens=tiny.TOKENS)
    first = expected(model)[0]
    assert tokens == first
    train(model, 2)
    report = sender.send()  # rank 1 fails once
    assert not report.complete
    assert all("rank 1 is out of memory" in str(each.error) for each in report.workers)
    [[tokens, _, _]] = engine.ask("generate_adapted", adapter="math", prompts=[tiny.PROMPT], tokens=tiny.TOKENS)
    assert tokens in (first, expected(model)[0])  # the version is tried again
    train(model, 3)
    sender.wait_for_workers(2, PATIENCE)
    assert sender.send().complete
    [[tokens, _, _]] = engine.ask("generate_adapted", adapter="math", prompts=[tiny.PROMPT], tokens=tiny.TOKENS)
    assert tokens == expected(model)[0]
    engine.kill()


def test_modules_to_which_the_engine_gives_no_adapters_are_named(changing):
    engine, sender, model = changing({}, {"lora_target_modules": ["o_proj"]})
    train(model, 1)
    report = sender.send()
    assert not report.complete
    assert "binds no module" in str(report.workers[0].error) and "--lora-target-modules" in str(report.workers[0].error)
    [[_, _, reason]] = engine.ask("generate_adapted", adapter="math", prompts=[tiny.PROMPT], tokens=3)
    assert "adapter math has no version yet: the trainer's adapter binds no module" in reason
    engine.kill()


def test_an_engine_without_room_for_adapters_does_not_start(start_engine, checkpoint, endpoint, capfd):
    engine = start_engine({"BASCULE_ADAPTERS": f"math={endpoint}"}, model=checkpoint)
    engine.process.wait(PATIENCE)
    assert "start vLLM with --enable-lora" in capfd.readouterr().err
