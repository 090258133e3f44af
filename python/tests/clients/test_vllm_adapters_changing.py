"""Adapters that change while vLLM serves requests, over HTTP and in an engine with two ranks."""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiny

import bascule

pytest.importorskip("vllm")
pytest.importorskip("peft")
from adapted import adapted, asking, expected, next_tokens, train  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

PATIENCE = 600  # seconds, longer than anything healthy takes on a busy machine
LONG = list(range(3, 103))  # a prompt of several blocks of the prefix cache
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


def test_adapters_of_a_folder_come_and_go_while_requests_run(serve, checkpoint, tmp_path):
    folder = tmp_path / "adapters"
    server = serve({"BASCULE_ADAPTERS": f"shm://{folder}", "OMP_NUM_THREADS": "1"}, "--enable-lora", "--max-lora-rank", "16",
                   "--max-loras", "2", "--max-model-len", "256", "--enable-prefix-caching", "--block-size", "32")
    server.wait_until_up(PATIENCE)
    base = server.models()
    assert server.generate(model="math")[0] == 404
    configs = {"math": {}, "code": {"target_modules": "all-linear"}, "a b": {"r": 16}, "more": {"r": 4, "use_rslora": True}}

    def made(name, seed):
        adapter = adapted(checkpoint, **configs[name])
        train(adapter, seed)
        return adapter

    def come(name, seed):
        adapter = made(name, seed)
        with bascule.Sender(f"shm://{folder}/{name}") as sender:
            sender.register_adapter(adapter)
            sender.wait_for_workers(1, PATIENCE)
            report = sender.send()
            assert report.complete and (report.version == 1 or name == "more")
        return expected(adapter, LONG)[0]

    def generate(name):
        return server.generate(model=name, prompt=LONG)

    def go(*names):
        for name in names:
            shutil.rmtree(folder / name)
        deadline = time.monotonic() + PATIENCE
        while set(server.models()) - {*base, *os.listdir(folder)}:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    math, code = come("math", 1), []  # what was ever published of `code`

    def ask_math():
        assert generate("math") == (200, math)

    def ask_code():
        status, tokens = generate("code")
        assert status in (404, 503) or tokens in code, (status, tokens)

    with asking(ask_math, ask_code):
        for turn in range(3):
            wanted = {}
            for number, name in enumerate(("more", "code", "a b")):  # with math, twice as many as the engine has slots
                if name == "code":
                    code.append(expected(made(name, 10 * turn + number), LONG)[0])
                wanted[name] = come(name, 10 * turn + number)
            assert sorted(server.models()) == sorted([*base, "math", *wanted])
            for _ in range(2):
                for name, tokens in wanted.items():  # with what was cached of the last turn
                    assert generate(name) == (200, tokens)
            go("code", "a b")
            assert generate("code")[0] == 404
            shutil.rmtree(folder / "more")  # it comes again at once
    go()
    assert server.models() == [*base, "math"] and server.get("/health") == 200


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


def running(engine):
    """Starts a request. Returns the thread that waits for its answer, and the list that gets its tokens."""
    engine.begin("generate_in_steps", adapter="math", prompt=tiny.PROMPT, tokens=240)
    assert engine.answer() == "begun"
    tokens = []
    thread = threading.Thread(target=lambda: tokens.extend(engine.answer()))
    thread.start()
    return thread, tokens


def test_a_running_request_keeps_its_version_until_a_later_one_takes_its_place(changing):
    engine, sender, model = changing({}, {}, parameters="?load_timeout=40ms")
    for version in (1, 2):
        train(model, version)
        assert sender.send().complete
    thread, tokens = running(engine)
    train(model, 3)
    assert sender.send().complete  # in the place of version 1
    thread.join(PATIENCE)
    train(model, 2)
    assert len(tokens) == 240 and tokens == next_tokens(model, tokens)
    assert engine.ask("adapters")["math"]["moved_requests"] == 0

    thread, tokens = running(engine)  # with version 3
    version = 3
    while thread.is_alive():
        version += 1
        train(model, version)
        assert sender.send().complete
    thread.join(PATIENCE)
    assert len(tokens) == 240
    assert engine.ask("adapters")["math"]["moved_requests"] > 0
    done = 0
    for each in range(3, version + 1):  # a stretch of each version that it had
        train(model, each)
        own = next_tokens(model, tokens)
        while done < len(tokens) and own[done] == tokens[done]:
            done += 1
    assert done == len(tokens)
    engine.kill()


def test_if_one_version_is_kept_each_new_one_takes_its_place_at_once(changing):
    engine, sender, model = changing({"BASCULE_ADAPTER_KEEP": "1"}, {})  # the default load_timeout is two minutes
    train(model, 1)
    assert sender.send().complete
    thread, tokens = running(engine)
    version = 1
    while thread.is_alive():
        version += 1
        train(model, version)
        assert sender.send().complete
    thread.join(PATIENCE)
    assert len(tokens) == 240
    report = engine.ask("adapters")["math"]
    assert report["moved_requests"] > 0 and report["versions"] == [f"math@{version}"]
    engine.kill()


def test_all_ranks_serve_a_version_or_none(changing):
    engine, sender, model = changing({}, {"tensor_parallel_size": 2, "worker_extension_cls": "failing_adapter.Extension"},
                                     {"target_modules": "all-linear", "use_rslora": True}, ranks=2)

    def tokens():
        [[answer, _, _]] = engine.ask("generate_adapted", adapter="math", prompts=[tiny.PROMPT], tokens=tiny.TOKENS)
        return answer

    versions = []
    for version, error in ((1, ""), (2, "rank 1 is out of memory"), (3, "rank 1 has no slot"), (4, "")):
        sender.wait_for_workers(2, PATIENCE)
        train(model, version)
        versions.append(expected(model)[0])
        report = sender.send()
        if error:
            assert not report.complete and all(error in str(each.error) for each in report.workers)
            assert tokens() in versions  # it is tried again
        else:
            assert report.complete and tokens() == versions[-1]
    engine.kill()


def test_adapted_embeddings_are_served_if_the_model_has_a_place_for_them(start_engine, tmp_path, endpoint):
    tiny.save(tmp_path)  # the tokenizer; Qwen2 has no such place in vLLM
    base = LlamaForCausalLM(LlamaConfig(vocab_size=tiny.WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=256,
                                        bos_token_id=0, eos_token_id=1, pad_token_id=1, tie_word_embeddings=False))
    base.save_pretrained(tmp_path)
    engine = start_engine({"BASCULE_ADAPTERS": f"math={endpoint}"}, model=str(tmp_path), **LORA).started()
    model = adapted(base, target_modules=["q_proj", "embed_tokens"])
    with bascule.Sender(endpoint) as sender:
        sender.register_adapter(model)
        sender.wait_for_workers(1, PATIENCE)
        for version in (1, 2, 3):
            train(model, version)
            report = sender.send()
            assert report.complete, str(report.workers[0].error)
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
    assert engine.process.wait(PATIENCE) != 0
    assert "start vLLM with --enable-lora" in capfd.readouterr().err
