"""Adapters of bascule-train in PEFT, and PEFT's in bascule-train: needs a release build of the trainer."""

import http.server
import json
import pathlib
import subprocess
import threading

import pytest
import torch

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
import bascule.peft  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
TRAIN, DEMO, END = ROOT / "build/release/bin/bascule-train", ROOT / "trainer_ref/demo", 13
pytestmark = pytest.mark.skipif(not TRAIN.exists(), reason="bascule-train is not built")


def train(*flags):
    subprocess.run([TRAIN, "--model", DEMO, "--threads", "1", *map(str, flags)], check=True, timeout=300)


def taught(out, *flags):
    train("--supervised", "--steps", 3, "--learning-rate", 1e-2, "--out", out, *flags)
    return out


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(1, 12)[None]).logits


def base():
    return transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)


def merged(adapter, out):
    train("--merge", adapter, "--merge-dtype", "f32", "--out", out)
    return transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flags", [
    ["--lora-rank", 4],
    ["--lora-rank", 8, "--lora-alpha", 5, "--lora-rslora", "--lora-targets", "q_proj,down_proj", "--lora-dropout", 0.1],
    ["--lora-rank", 2, "--lora-targets", r".*\.layers\.0\..*_proj"],
])
def test_peft_computes_with_a_trained_adapter_what_the_merged_checkpoint_computes(tmp_path, flags):
    adapter = taught(tmp_path / "adapter", *flags)
    model = peft.PeftModel.from_pretrained(base(), adapter)
    assert all(float(p.abs().max()) > 0 for name, p in model.named_parameters() if "lora_B" in name)  # it learnt
    assert not close(logits(model), logits(base()))
    assert close(logits(model), logits(merged(adapter, tmp_path / "merged")))


def test_a_run_starts_from_pefts_adapter(tmp_path):
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=6, use_rslora=True, target_modules="all-linear",
                             rank_pattern={"down_proj": 2}, alpha_pattern={"v_proj": 3}, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base(), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(tmp_path / "peft")
    assert close(logits(merged(tmp_path / "peft", tmp_path / "merged")), logits(model))

    # Without a learning rate to speak of, the run writes what it read.
    again = taught(tmp_path / "again", "--adapter", tmp_path / "peft", "--learning-rate", 1e-12)
    assert torch.equal(logits(peft.PeftModel.from_pretrained(base(), again)), logits(model))
    further = taught(tmp_path / "further", "--adapter", tmp_path / "peft")
    assert not close(logits(peft.PeftModel.from_pretrained(base(), further)), logits(model))


class Engine(http.server.ThreadingHTTPServer):
    """An engine whose adapter follows the trainer's: PEFT with the interface of bascule-engine."""

    def __init__(self, model, following):
        super().__init__(("127.0.0.1", 0), Answers)
        self.model, self.following, self.generator = model, following, torch.Generator().manual_seed(1)
        self.lock, self.names, self.versions = threading.Lock(), set(), set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def complete(self, request):
        self.names.add(request.get("model"))
        with self.lock, self.following.held() as version, torch.no_grad():
            self.versions.add(version)
            tokens = torch.tensor([request["prompt"]] * request["n"])
            begin, log_probs = tokens.shape[1], []
            for _ in range(request["max_tokens"]):
                scores = self.model(tokens).logits[:, -1].log_softmax(-1)
                greedy = request["temperature"] == 0
                chosen = (scores.argmax(-1, keepdim=True) if greedy else
                          torch.multinomial(scores.exp(), 1, generator=self.generator))
                tokens = torch.cat([tokens, chosen], 1)
                log_probs.append(scores.gather(1, chosen))
            epoch = self.following.status().epoch
        choices = []
        for ids, scores in zip(tokens[:, begin:].tolist(), torch.cat(log_probs, 1).tolist()):
            length = ids.index(END) + 1 if END in ids else len(ids)
            choices.append({"token_ids": ids[:length], "logprobs": {"token_logprobs": scores[:length]},
                            "epochs": [epoch] * length, "versions": [version] * length,
                            "finish_reason": "stop" if END in ids else "length"})
        return {"choices": choices}


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path == "/health":
            status = self.server.following.status()
            self.answer({"worker": "engine", "adapters": {"math": {"attached": status.attached, "epoch": status.epoch}}})
        else:
            self.answer({"data": [{"max_model_len": 32, "max_completions": 64, "max_batch": 64}]})

    def do_POST(self):
        self.answer(self.server.complete(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def log_message(self, *_):
        pass


def test_an_engine_that_follows_the_adapter_samples_with_the_trainers_probabilities(tmp_path):
    endpoint = f"shm://{tmp_path / 'sync'}"
    served = peft.get_peft_model(base(), peft.LoraConfig(r=4, lora_alpha=99, target_modules="all-linear")).eval()
    with bascule.peft.follow(served, endpoint, worker="engine") as following, Engine(served, following) as engine:
        train("--engines", f"http://127.0.0.1:{engine.server_port}", "--sync", endpoint, "--lora-rank", 4,
              "--lora-alpha", 3, "--lora-rslora", "--lora-sync", "adapters", "--lora-name", "math", "--steps", 3,
              "--learning-rate", 1e-2, "--max-tokens", 3, "--prompts-per-step", 8, "--group-size", 8, "--eval-problems", 8,
              "--beta", 0.01, "--out", tmp_path / "run")
        following.wait(4)
        engine.shutdown()
        assert engine.names == {"math"} and engine.versions == {1, 2, 3, 4}
        found = logits(served)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        assert line["importance"]["mean"] == pytest.approx(1, abs=1e-4)  # the engine's probabilities are the policy's
    assert lines[-1]["kl"] > 0
    assert not close(found, logits(base()))
    trained = peft.PeftModel.from_pretrained(base(), tmp_path / "run/adapter_step_3")
    assert close(found, logits(trained))
