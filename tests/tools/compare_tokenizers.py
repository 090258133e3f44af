"""Compares the reference pair's tokenizers with Hugging Face's. tests/tools/compare-tokenizers runs it in its venv.

For each family it trains a small tokenizer on generated words, with the normalizers, pre_tokenizers, post_processors
and decoders of the family's own files. Both libraries encode generated texts; ids and texts must be the same. The seeds
are fixed: the same version of `tokenizers` writes the same bytes.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata
import zipfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/trainer_ref/text/fixtures"

# The regular expressions in the families' own files.
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(pre, specials, normalizer=None, post=None, ignore_merges=False, **options):
    def make(words, vocab_size):
        tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(words, trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
        add(tokenizer, specials)
        if post:
            tokenizer.post_processor = post(tokenizer)
        return tokenizer
    return make


def add(tokenizer, specials):
    for token in specials:
        token = token if isinstance(token, AddedToken) else AddedToken(token, normalized=False, special=True)
        if token.special:
            tokenizer.add_special_tokens([token])
        else:
            tokenizer.add_tokens([token])


def pieces(specials, normalizer=None, pre=None, decoder=None, post=None, unknown="<unk>", without=""):
    """Like SentencePiece: uses bytes for characters that the vocabulary lacks."""
    def make(words, vocab_size):
        base = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        tokenizer = Tokenizer(models.BPE(unk_token=unknown, fuse_unk=True, byte_fallback=True))
        if normalizer:
            tokenizer.normalizer = normalizer
        # In training, pieces do not cross words; the result is an ordinary BPE vocabulary with merges.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        tokenizer.train_from_iterator(words, trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=base, show_progress=False, limit_alphabet=180))
        file = json.loads(tokenizer.to_str())
        file["added_tokens"] = []
        if without:  # removes some bytes from the vocabulary, so that the unk_token is needed
            free = [t for t in file["model"]["vocab"] if t.startswith("<0x") and t[3:5] in without.split()]
            for i, token in enumerate(free):
                file["model"]["vocab"][f"[free{i}]"] = file["model"]["vocab"].pop(token)
        file["model"]["type"] = "BPE"
        tokenizer = Tokenizer.from_str(json.dumps(file))
        tokenizer.pre_tokenizer = pre or pre_tokenizers.Sequence([])
        if decoder:
            tokenizer.decoder = decoder
        add(tokenizer, specials)
        if post:
            tokenizer.post_processor = post(tokenizer)
        file = json.loads(tokenizer.to_str())
        if pre is None:
            file["pre_tokenizer"] = None
        return Tokenizer.from_str(json.dumps(file))
    return make


def template(single):
    def make(tokenizer):
        names = [name for name in single.split() if not name.startswith("$")]
        return processors.TemplateProcessing(single=single, pair=f"{single} $B",
                                             special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])
    return make


def characters(_words, _vocab_size):
    vocabulary = {character: i for i, character in enumerate("0123456789+= ")} | {"<end>": 13, "?": 14}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = split(".")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


def words_alone(words, vocab_size):
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<unk>", *sorted(set(" ".join(words).split()))[:vocab_size]])},
                                           unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    add(tokenizer, ["[BOS]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="[BOS] $A", pair="$A $B",
                                                             special_tokens=[("[BOS]", tokenizer.token_to_id("[BOS]"))])
    return tokenizer


LLAMA2_DECODER = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                    decoders.Strip(" ", 1, 0)])
ODD = [AddedToken("<mask>", lstrip=True, normalized=False, special=True),
       AddedToken("<right>", rstrip=True, normalized=False, special=True),
       AddedToken("word", single_word=True, normalized=False, special=False),
       AddedToken("<both>", lstrip=True, rstrip=True, normalized=True, special=False),
       AddedToken("<both>er", normalized=True, special=False),
       AddedToken("café", normalized=True, special=False)]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOOLS = [AddedToken("<tool_call>", normalized=False, special=False), AddedToken("<think>", normalized=False, special=False)]

FAMILIES = {
    "characters": characters,
    "words": words_alone,
    "qwen2": byte_level(pre_tokenizers.Sequence([split(QWEN2), pre_tokenizers.ByteLevel(False, use_regex=False)]),
                        CHATML + TOOLS, normalizer=normalizers.NFC(), post=lambda _: processors.ByteLevel(trim_offsets=False)),
    "llama3": byte_level(pre_tokenizers.Sequence([split(LLAMA3), pre_tokenizers.ByteLevel(False, use_regex=False)]),
                         ["<|begin_of_text|>", "<|eot_id|>"], ignore_merges=True,
                         post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                             template("<|begin_of_text|> $A")(t)])),
    "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False),
                       [AddedToken("<|endoftext|>", normalized=True, special=True)],
                       post=lambda _: processors.ByteLevel(trim_offsets=False)),
    "gpt2_prefixed": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<|endoftext|>"] + ODD),
    "o200k": byte_level(pre_tokenizers.Sequence([split(O200K), pre_tokenizers.ByteLevel(False, use_regex=False)]),
                        CHATML, ignore_merges=True),
    "deepseek": byte_level(pre_tokenizers.Sequence([*map(split, DEEPSEEK),
                                                          pre_tokenizers.ByteLevel(False, use_regex=False)]),
                           ["<｜begin▁of▁sentence｜>", "<｜User｜>"], post=template("<｜begin▁of▁sentence｜> $A"),
                           normalizer=normalizers.Sequence([])),
    "starcoder": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False)]),
                            ["<fim_prefix>", "<fim_suffix>"]),
    "falcon": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"),
                                                        pre_tokenizers.ByteLevel(add_prefix_space=False),
                                                        pre_tokenizers.Digits(individual_digits=False),
                                                        split("[0-9][0-9][0-9]")]), [">>TITLE<<"]),
    "llama2": pieces(["<unk>", "<s>", "</s>"],
                     normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                     decoder=LLAMA2_DECODER, post=template("<s> $A")),
    "llama2_odd": pieces(["<s>", "</s>"] + ODD,
                         normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                         decoder=LLAMA2_DECODER, without="C3 D0 E0 F0"),
    "mistral": pieces(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"],
                      pre=pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False),
                      decoder=LLAMA2_DECODER, post=template("<s> $A")),
    "metaspace": pieces(["<s>", "</s>"] + ODD, normalizer=normalizers.NFKC(),
                        pre=pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=True),
                        decoder=decoders.Metaspace("▁", prepend_scheme="always"), post=template("$A </s>")),
    "gemma": pieces(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"] +
                    [AddedToken(text, normalized=False, special=False) for text in ("\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "\t\t")],
                    normalizer=normalizers.Replace(" ", "▁"), pre=pre_tokenizers.Split(" ", "merged_with_previous"),
                    decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
                    post=template("<bos> $A")),
}

STEMS = """the of and to in is that it was for on are with as his they be at one have this from or had by not but what all
were when we there can an your which their said if do will each about how up out them then she many some so these would
other into has more her two like him see time could no make than first been its who now people my made over did down only
way find use may water long little very after words called just where most know get through back much before go good new
write our used me man too any day same right look think also around another came come work three word must because does
part even place well such here take why things help put years different away again off went old number great tell men say
small every found still between name should home big give air line set own under read last never us left end along while
might next sound below saw something thought both few those always show large often together asked house world going want
import return class self None True False def lambda print range len for in while if else elif try except raise yield async
const auto std vector string size_t uint32_t template typename namespace struct public private static inline void nullptr
Привет мир как дела это хорошо день ночь слово язык 你好 世界 模型 训练 语言 数据 我们 可以 学习 こんにちは 世界 日本語 です ます ありがとう
안녕하세요 세계 한국어 모델 γλώσσα κόσμος λόγος مرحبا العالم لغة שלום עולם नमस्ते दुनिया भाषा สวัสดี ชาวโลก größer schön naïve café
résumé Ångström coöperate İstanbul ﬁnance ½ ² Ⅷ ① ９ ｆｕｌｌ""".split()
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600),
           (0x600, 0x700), (0x900, 0xA00), (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
           (0x20A0, 0x2C00), (0x3000, 0x3100), (0x3400, 0x9FFF), (0xAC00, 0xD7A4), (0xF900, 0xFB50), (0xFB50, 0xFE00),
           (0xFE00, 0x10000), (0x10000, 0x10400), (0x1D400, 0x1D800), (0x1F300, 0x1FA00), (0x20000, 0x2A6D0)]
EMOJI = ["😀", "👩‍👩‍👧", "👍🏽", "🇩🇪", "❤️", "1️⃣", "🏳️‍🌈", "🫠", "⛄", "👨🏿‍🚀"]
BITS = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u180e", "\u200b", "\u200d", "\u2028",
        "\x00", "\x1b", "\x7f", "\x85", "'s", "'S", "'ſ", "'LL", "n't", "'re", "▁", " ▁", "Ġ", "<0x41>", "\ufeff", "\ufffd",
        "e\u0301", "\u0301", "n\u0303o", "\u1100\u1161\u11a8", "ﬀ", "=>", "//", "{", "}", "();", "...", "—", "_", "__init__",
        "0", "42", "1234567", "3.14159", "1e-5", "٣٤", "½", "²"]


def corpus():
    """Texts for training, in which common words are frequent and rare ones seldom."""
    rng = random.Random(1)
    for _ in range(4000):
        yield " ".join(STEMS[min(int(rng.expovariate(1 / 90)), len(STEMS) - 1)].strip() for _ in range(12)) + rng.choice(".,!?\n")


def assigned(character):
    """Whether it is in Unicode 14, which Debian 12's PCRE2 supports. Python 3.11 supports exactly that."""
    return unicodedata.category(character) not in ("Cn", "Cs")


def texts(count, tokens, seed=2, longest=14):
    """Generated texts: words, characters of all scripts, emoji, code, all kinds of spaces, and added tokens."""
    rng = random.Random(seed)

    def piece():
        kind = rng.random()
        if kind < 0.40:
            word = rng.choice(STEMS)
            return rng.choice([word, word, word.capitalize(), word.upper(), word + rng.choice(STEMS)])
        if kind < 0.55:
            return rng.choice(BITS)
        if kind < 0.62:
            return rng.choice(EMOJI)
        if kind < 0.70 and tokens:
            token = rng.choice(tokens)
            return rng.choice([token, token, " " + token, token + " ", token[:-1], token + token])
        if kind < 0.78:
            return str(rng.randrange(10 ** rng.randrange(1, 12)))
        first, last = rng.choice(SCRIPTS)
        found = [chr(rng.randrange(first, last)) for _ in range(rng.randrange(1, 6))]
        return "".join(c for c in found if assigned(c))

    yield ""
    yield " "
    for i in range(count - 2):
        length = 200 if i % 500 == 70 else rng.randrange(1, longest)
        yield "".join(piece() + rng.choice(["", " ", " ", "  " if i % 9 == 0 else " "]) for _ in range(length))


def id_lists(count, ids, seed=4):
    """Lists of ids that no text gives: cut characters, bytes in any order, ids without a token."""
    rng = random.Random(seed)
    for _ in range(count):
        yield [rng.randrange(ids + 2) if rng.random() < 0.5 else rng.randrange(min(ids, 260)) for _ in range(rng.randrange(12))]


def expected(tokenizer, value):
    """The answer expected from bascule-tokenize, without a stream's pieces."""
    ids = None if isinstance(value, list) else tokenizer.encode(value, add_special_tokens=False).ids
    all_ids = value if isinstance(value, list) else tokenizer.encode(value).ids
    # Hugging Face's decode() keeps special tokens that a normalizer changes; ours omits them.
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    return ({} if ids is None else {"ids": ids, "all_ids": all_ids}) | {
        "decoded": tokenizer.decode([i for i in all_ids if i not in special]),
        "special": tokenizer.decode(all_ids, skip_special_tokens=False)}


def differences(program, folder, tokenizer, cases):
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    run = subprocess.run([program, folder], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(cases), f"expected {len(cases)} answers, found {len(answers)}"
    for case, answer in zip(cases, answers):
        wanted = expected(tokenizer, case)
        wanted["streamed"] = wanted["decoded"]
        answer["streamed"] = "".join(answer.get("streamed", []))
        if wanted != answer:
            yield case, wanted, answer


def kept(target):
    """The inputs of the fuzz target `target` that searches kept."""
    with zipfile.ZipFile(ROOT / f"tests/fuzz/corpus/{target}.zip") as archive:
        return [archive.read(name) for name in archive.namelist()]


def utf8(data):
    """The text, or None if the libraries need not agree on it: no UTF-8, or newer than Unicode 14."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(map(assigned, text)) else None


def compare_kept_texts(program):
    """Compares the texts that fuzz target `text` kept, each with the fixture that its first byte chooses."""
    folders, failed = sorted(FIXTURES.iterdir()), False
    cases = {folder: [] for folder in folders}
    for data in kept("text"):
        if data and (text := utf8(data[1:])) is not None:
            cases[folders[data[0] % len(folders)]].append(text)
    for folder, texts_of_it in cases.items():
        found = list(differences(program, folder, Tokenizer.from_file(f"{folder}/tokenizer.json"), texts_of_it))
        report(f"kept texts of {folder.name}", found, len(texts_of_it))
        failed |= bool(found)
    return failed


def compare_kept_files(program):
    """Compares the files and texts that fuzz target `tokenizer` kept, if both libraries take them."""
    found, count = [], 0
    for data in kept("tokenizer"):
        file, _, text = data.partition(b"\0")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tokenizer.json").write_bytes(file)
            try:
                tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
                if utf8(text) is None or utf8(file) is None:
                    continue
                tokenizer.encode(text.decode())
            except BaseException:  # a panic of Rust is no Exception
                continue
            if subprocess.run([program, folder], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
                count += 1
                found += [(f"{file!r} {case!r}", wanted, answer) for case, wanted, answer in
                          differences(program, folder, tokenizer, [text.decode()]) if "error" not in answer]
    report("kept files", found, count)
    return bool(found)


def tokens_of(tokenizer):
    return [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]


def report(name, found, count):
    for case, wanted, answer in found[:3]:
        print(f"{name}: {case!r}")
        for key in wanted:
            if wanted[key] != answer.get(key):
                print(f"  {key}: expected {wanted[key]!r}\n  {' ' * len(key)}  found    {answer.get(key, answer)!r}")
    print(f"{name}: {count} texts and lists of ids, {len(found)} differ", flush=True)


def write_fixtures(name, tokenizer, count):
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    file = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")
    values = [*texts(count - count // 8, tokens_of(tokenizer), seed=3, longest=8),
              *id_lists(count // 8, tokenizer.get_vocab_size())]
    lines = []
    for value in values:
        case = {"value": value} | expected(tokenizer, value)
        # A key that is omitted has the previous key's value.
        for key, other in {"all_ids": "ids", "special": "decoded"}.items():
            if case.get(key) == case.get(other):
                case.pop(key, None)
        lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
    (folder / "expected.json").write_text("[" + ",\n".join(lines) + "]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="bascule-tokenize; without it, nothing is compared")
    parser.add_argument("--count", type=int, default=10000, help="texts for each family")
    parser.add_argument("--vocabulary", type=int, default=1500, help="tokens of each family")
    parser.add_argument("--fixtures", type=int, default=0, help="write this many texts of each family as fixtures")
    parser.add_argument("--corpus", action="store_true", help="compare what the fuzz targets kept, and nothing else")
    parser.add_argument("files", nargs="*", help="folders with a tokenizer.json, instead of the families")
    arguments = parser.parse_args()
    if arguments.corpus:
        sys.exit(bool(compare_kept_texts(arguments.program)) | compare_kept_files(arguments.program))
    words, failed = list(corpus()), False
    named = {path: lambda *_, path=path: Tokenizer.from_file(f"{path}/tokenizer.json") for path in arguments.files}
    for name, make in (named or FAMILIES).items():
        tokenizer = make(words, arguments.vocabulary)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(f"{folder}/tokenizer.json")
            tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")  # the ids that a reader of the file gets
            if arguments.fixtures:
                write_fixtures(name, tokenizer, arguments.fixtures)
            if arguments.program:
                cases = [*texts(arguments.count, tokens_of(tokenizer)),
                         *id_lists(arguments.count // 5, tokenizer.get_vocab_size())]
                found = list(differences(arguments.program, folder, tokenizer, cases))
                report(name, found, len(cases))
                failed |= bool(found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
