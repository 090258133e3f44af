#!/usr/bin/env python3
"""Compares bascule-engine's answers with Hugging Face's transformers, for each model family that it serves.

    python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.23.0 tokenizers==0.23.3
    V/bin/python tests/tools/compare-families.py --fixtures           rewrites tests/trainer_ref/families/fixtures
    V/bin/python tests/tools/compare-families.py --engine build/release/bin/bascule-engine --count 40

For each family it makes a small random checkpoint with the family's kind of tokenizer (trained as in
tests/tools/compare-tokenizers) and a chat template. Each text is encoded, continued by greedy decoding in float32, and
decoded; each conversation is written by apply_chat_template. With --engine, an engine answers --count generated texts
per family. Ids and texts must be the same. The seeds are fixed: the same versions write the same bytes.

A fixture's expected.json holds
    texts    [{"prompt", "prompt_token_ids", and the completion's "token_ids", "text" and "finish_reason"}]
    chats    [{"messages", "variables", "prompt_token_ids"}]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports, which may fail
    print(__doc__)
    sys.exit(0)

import torch
import transformers

import compare_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/trainer_ref/families/fixtures"
TEMPLATES = ROOT / "tests/trainer_ref/chat/fixtures/templates"
MAX_TOKENS = 12
LEAST_GAP = 2e-4  # between the two largest logits, which are about 10 at most: rounding is a hundred times smaller

SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512)
HEADERS = ["<|start_header_id|>", "<|end_header_id|>"]

# name: (configuration, dtype of the file, its tokenizer's family and more special tokens, template, bos, eos)
FAMILIES = {
    "llama": (transformers.LlamaConfig, dict(tie_word_embeddings=True), torch.float32,
              "llama3", HEADERS, "llama3", "<|begin_of_text|>", "<|eot_id|>"),
    "mistral": (transformers.MistralConfig, dict(head_dim=16, sliding_window=None, tie_word_embeddings=True),
                torch.float32, "mistral", [], "mistral-v0.1", "<s>", "</s>"),
    "qwen2": (transformers.Qwen2Config, dict(tie_word_embeddings=True), torch.float32,
              "qwen2", [], "qwen2.5", None, "<|im_end|>"),
    "qwen3": (transformers.Qwen3Config, dict(head_dim=16, tie_word_embeddings=True), torch.bfloat16,
              "qwen2", [], "qwen3", None, "<|im_end|>"),
}

TEXTS = ["Hello world", "  two  spaces\n\nand lines", "It's 1234567, isn't it?", "größer 你好 世界 😀👩‍👩‍👧", "Привет мир",
         "def range(n): return n // 2", "e\u0301 \u1100\u1161 नमस्ते", "0", " ", "a\x00b\u3000c"]
CHATS = [([{"role": "user", "content": "Hello world"}], {}),
         ([{"role": "user", "content": "  What is 2+2?\n"}, {"role": "assistant", "content": "4"},
           {"role": "user", "content": "größer 你好 😀"}], {}),
         ([{"role": "system", "content": "Answer in a word."}, {"role": "user", "content": "It's 1234567."}], {}),
         ([{"role": "user", "content": "Hello world"}], {"enable_thinking": False}),
         ([{"role": "user", "content": "Say <s> or <|im_end|>."}], {})]


def make_tokenizer(folder, family, specials, vocabulary):
    tokenizer = compare_tokenizers.FAMILIES[family](list(compare_tokenizers.corpus()), vocabulary)
    compare_tokenizers.add(tokenizer, specials)
    file = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")
    return tokenizer


def randomize(model):
    """Sets weights that make logits differ, and make the end token likely enough to occur."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(1 + 0.2 * torch.randn(weight.shape) if "norm" in name else 0.25 * torch.randn(weight.shape))
        model.get_output_embeddings().weight[model.config.eos_token_id] *= 2


def make_checkpoint(folder, name):
    """Writes a folder like the hub's: config, weights, tokenizer, chat template."""
    config, options, dtype, family, specials, template, bos, eos = FAMILIES[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer(folder, family, specials, vocabulary=500)
    torch.manual_seed(sum(name.encode()))
    model = transformers.AutoModelForCausalLM.from_config(config(
        **SIZES, **options, vocab_size=tokenizer.get_vocab_size(),
        bos_token_id=tokenizer.token_to_id(bos) if bos else None, eos_token_id=tokenizer.token_to_id(eos)))
    randomize(model)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "eos_token": eos}
    (folder / "tokenizer_config.json").write_text(json.dumps(words | ({"bos_token": bos} if bos else {}), indent=2) + "\n")
    shutil.copyfile(TEMPLATES / f"{template}.jinja", folder / "chat_template.jinja")


class Reference:
    """transformers' results for a folder."""

    def __init__(self, folder):
        self.tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def complete(self, prompt):
        """The completion, or None if two tokens are so close that rounding may choose."""
        ids = self.tokenizer(prompt)["input_ids"]
        if not ids:
            return None
        given = torch.tensor([ids])
        out = self.model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=MAX_TOKENS, do_sample=False,
                                  pad_token_id=0, output_logits=True, return_dict_in_generate=True)
        for logits in out.logits:
            first, second = logits[0].topk(2).values.tolist()
            if first - second < LEAST_GAP:
                return None
        completion = out.sequences[0, len(ids):].tolist()
        # What follows the prompt's text, as in the text-generation pipeline: alone, a text may begin without its space.
        whole, before = (self.tokenizer.decode(tokens, skip_special_tokens=True) for tokens in (ids + completion, ids))
        return {"prompt": prompt, "prompt_token_ids": ids, "token_ids": completion,
                "text": whole[len(os.path.commonprefix([whole, before])):],
                "finish_reason": "stop" if completion[-1] == self.model.config.eos_token_id else "length"}

    def chat(self, messages, variables):
        """The prompt, or None if the template refuses the conversation."""
        try:
            ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False,
                                                     **variables)
        except Exception as error:  # Jinja2's, from raise_exception
            if "TemplateError" not in type(error).__name__:
                raise
            return None
        return {"messages": messages, "variables": variables, "prompt_token_ids": ids}


def write_fixtures():
    for name in FAMILIES:
        make_checkpoint(FIXTURES / name, name)
        reference = Reference(FIXTURES / name)
        texts = [case for case in map(reference.complete, TEXTS) if case]
        chats = [case for case in (reference.chat(*chat) for chat in CHATS) if case]
        assert len(texts) >= 8 and len(chats) >= 4, f"{name}: {len(texts)} texts, {len(chats)} chats"
        assert len({case["finish_reason"] for case in texts}) == 2, f"{name}: expected texts that end, and some that are cut"
        lines = {"texts": texts, "chats": chats}
        (FIXTURES / name / "expected.json").write_text(json.dumps(lines, ensure_ascii=False, indent=1) + "\n")
        print(f"{name}: {len(texts)} texts, {len(chats)} conversations")
    print(f"{sum(f.stat().st_size for f in FIXTURES.rglob('*') if f.is_file())} bytes in {FIXTURES}")


class Engine:
    """bascule-engine as a process; it ends with the block."""

    def __init__(self, program, folder):
        self.command = [program, "--model", str(folder), "--listen", "127.0.0.1:0", "--threads", "1", "--cache-bytes", "8MiB"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in self.process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1]
                return self
        sys.exit(f"{self.command[0]} ended with status {self.process.wait()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def complete(self, prompt):
        body = json.dumps({"prompt": prompt, "max_tokens": MAX_TOKENS, "temperature": 0}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]


def compare(program, count):
    failed = False
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            make_checkpoint(pathlib.Path(folder, name), name)
            reference = Reference(pathlib.Path(folder, name))
            tokens = compare_tokenizers.tokens_of(reference.tokenizer.backend_tokenizer)
            asked = different = 0
            with Engine(program, pathlib.Path(folder, name)) as engine:
                for prompt in compare_tokenizers.texts(count, tokens, seed=7, longest=8):
                    wanted = reference.complete(prompt)
                    if wanted is None:
                        continue
                    asked += 1
                    found = engine.complete(prompt)
                    if any(found[key] != wanted[key] for key in ("token_ids", "text", "finish_reason")):
                        different += 1
                        print(f"{name}: {prompt!r}\n  expected {wanted}\n  found    {found}")
        print(f"{name}: {asked} texts, {different} differ", flush=True)
        failed |= different > 0
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures", action="store_true")
    parser.add_argument("--engine")
    parser.add_argument("--count", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.fixtures and not arguments.engine:
        parser.error("expected --fixtures, or --engine build/release/bin/bascule-engine")
    if arguments.fixtures:
        write_fixtures()
    sys.exit(compare(arguments.engine, arguments.count) if arguments.engine else 0)


if __name__ == "__main__":
    main()
