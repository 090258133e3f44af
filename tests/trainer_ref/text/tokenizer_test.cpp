#include <bascule/trainer_ref/text/tokenizer.h>

#include "support.h"

namespace bascule::ref {
namespace {

using testing::ElementsAre;

TEST(Tokenizer, NamesWhatTheVocabularyLacks) {
  Json file = file_of("characters");
  file["model"]["unk_token"] = "<unk>";  // which it does not have
  const auto tokenizer = read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  expect_error(tokenizer->encode("12x").status(), absl::StatusCode::kInvalidArgument, "no token 'x'");
  expect_error(tokenizer->encode("1ü2").status(), absl::StatusCode::kInvalidArgument, "no token 'ü'");
  for (const char* bytes : {"1\xff", "\xc3", "\xe2\x82", "\x80", "\xed\xa0\x80"}) {
    expect_error(tokenizer->encode(bytes).status(), absl::StatusCode::kInvalidArgument, "not UTF-8");
  }
}

TEST(Tokenizer, TokensMayStandInTokenizerConfigOnly) {
  const TemporaryFolder folder;
  Json file = bpe({"a", "b", "ab"}, {"a b"});
  file["added_tokens"] = {added(3, "<s>")};
  folder.write("tokenizer.json", file.dump());
  const auto config = [&](const Json& tokens) {
    folder.write("tokenizer_config.json", Json{{"added_tokens_decoder", tokens}}.dump());
    return Tokenizer::read(folder.path());
  };
  const Json end = {{"content", "<e>"}, {"special", true}}, call = {{"content", "<c>"}}, known = {{"content", "<s>"}};
  const auto both = config({{"10", known}, {"5", end}, {"4", call}, {"2", {{"content", "ab"}}}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(*both->encode("a<c>b<e><s>"), ElementsAre(0, 4, 1, 5, 3));
  EXPECT_EQ(both->decode(Ids{0, 4, 5}), "a<c>") << "<e> is special";
  EXPECT_NE(both->fingerprint(), read(file)->fingerprint());
  expect_error(config({{"9", end}}).status(), absl::StatusCode::kInvalidArgument, "'<e>': expected the id 4");
  expect_error(config({{"x", end}}).status(), absl::StatusCode::kInvalidArgument,
               "tokenizer_config.json: added_tokens_decoder: expected a content under each id");
  folder.write("tokenizer_config.json", R"({"split_special_tokens": true})");
  expect_error(Tokenizer::read(folder.path()).status(), absl::StatusCode::kUnimplemented,
               "tokenizer_config.json: split_special_tokens");
  folder.write("tokenizer_config.json", R"({"split_special_tokens": false, "added_tokens_decoder": null})");
  EXPECT_EQ(Tokenizer::read(folder.path())->fingerprint(), read(file)->fingerprint());
}

// A byte-pair tokenizer whose tokenizer.json has one added token, and further files. AutoTokenizer of transformers 5.24
// gives the same ids and texts.
class FurtherTokens : public testing::Test {
 protected:
  FurtherTokens() {
    file_["added_tokens"] = {added(3, "<s>")};
    folder_.write("tokenizer.json", file_.dump());
  }
  void write(const char* file, const std::string& text) const { folder_.write(file, text); }
  Ids ids(const std::string& text) const {
    const auto tokenizer = Tokenizer::read(folder_.path());
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer.ok() ? *tokenizer->encode(text) : Ids();
  }
  // The text of these ids without special tokens.
  std::string text(const Ids& ids) const { return Tokenizer::read(folder_.path())->decode(ids); }

  const TemporaryFolder folder_;
  Json file_ = bpe({"a", "b", "ab"}, {"a b"});
};

TEST_F(FurtherTokens, OfSpecialTokensThatTheFileLacks) {
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    write("tokenizer_config.json", Json{{key, {"<e>", "b", "<s>"}}}.dump());
    EXPECT_THAT(ids("a<e>ab<s>"), ElementsAre(0, 4, 0, 1, 3)) << key << ": b is sought before tokens are merged";
    EXPECT_EQ(text({0, 4, 1, 3}), "a<s>") << "the properties of a token that the file has stay";
  }
  write("tokenizer_config.json", R"({"extra_special_tokens": {}, "additional_special_tokens": ["<e>"]})");
  write("special_tokens_map.json", R"({"extra_special_tokens": ["<f>"]})");
  EXPECT_THAT(ids("<e><f>"), ElementsAre(4, 5));
  write("tokenizer_config.json", R"({"extra_special_tokens": null})");
  write("special_tokens_map.json", R"({"additional_special_tokens": ["<f>"]})");
  EXPECT_THAT(ids("<f>"), ElementsAre(4));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_THAT(ids("ab<s>"), ElementsAre(2, 3)) << "special_tokens_map.json is not read";
}

TEST_F(FurtherTokens, OfNamesComeInTheirOrder) {
  write(
      "tokenizer_config.json",
      R"({"z_token": "<z>", "pad_token": "<p>", "extra_special_tokens": {"y_token": "<y>", "n": "<n>"}, "eos_token": "",
            "c_token": "<c>", "bos_token": {"__type": "AddedToken", "content": "<b>", "lstrip": true}})");
  EXPECT_THAT(ids("<b><p><z><c><y><n>"), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_THAT(ids("a  <b>"), ElementsAre(0, 4));
  EXPECT_EQ(text({0, 4, 6, 9}), "a");
  write("tokenizer_config.json", R"({"extra_special_tokens": ["<e>"]})");
  write("special_tokens_map.json", R"({"unk_token": {"content": "<u>"}, "tool_token": "<t>"})");
  EXPECT_THAT(ids("<u><t><e>"), ElementsAre(4, 5, 6));
}

TEST_F(FurtherTokens, MayStandInAddedTokensJson) {
  write("added_tokens.json", R"({"<f>": 5, "<c>": 4})");
  write("tokenizer_config.json", R"({"pad_token": "<f>"})");
  EXPECT_THAT(ids("<c><f>"), ElementsAre(4, 5));
  EXPECT_EQ(text({4, 5}), "<c>") << "<f> has a name";
  write("added_tokens.json", R"({"<f>": 9})");
  expect_error(Tokenizer::read(folder_.path()).status(), absl::StatusCode::kInvalidArgument, "expected the id 4");
  write("added_tokens.json", R"({"<f>": "4"})");
  expect_error(Tokenizer::read(folder_.path()).status(), absl::StatusCode::kInvalidArgument,
               "added_tokens.json: expected an id for each text");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"4": {"content": "<c>"}}})");
  EXPECT_THAT(ids("<c>"), ElementsAre(4)) << "added_tokens.json is not read";
}

TEST_F(FurtherTokens, GiveKnownOnesTheirProperties) {
  EXPECT_EQ(text({0, 3}), "a<s>");
  write("tokenizer_config.json", R"({"eos_token": "<s>"})");
  EXPECT_EQ(text({0, 3}), "a") << "it has a name";
  write("tokenizer_config.json", R"({"eos_token": "<s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(text({0, 3}), "a<s>");
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"3": {"content": "<s>", "special": true, "lstrip": true, "normalized": false}}})");
  EXPECT_EQ(text({0, 3}), "a");
  EXPECT_THAT(ids("a  <s>"), ElementsAre(0, 3));
  file_["added_tokens"][0]["special"] = true;
  write("tokenizer.json", file_.dump());
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"3": {"content": "<s>", "special": false}}})");
  EXPECT_EQ(text({0, 3}), "a") << "once special, always special";
}

TEST(Tokenizer, ReadsTheDemo) {
  const auto tokenizer = Tokenizer::read(BASCULE_DEMO_MODEL);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*tokenizer->encode("12+3=<end>"), ElementsAre(1, 2, 10, 3, 11, 13));
  EXPECT_EQ(tokenizer->decode(Ids{1, 2, 10, 3, 11, 13}), "12+3=");
}

TEST(Tokenizer, ATextOfTooManyBytesIsRefusedBeforeItIsEncoded) {
  const std::string text(1'000'000, 'a');
  // One word, and by its bytes at least 25,000 tokens: far fewer than it has.
  Json file = bpe({"a", "ab", "<unk>", std::string(40, 'a')}, {});
  file["model"]["unk_token"] = "<unk>";
  const auto tokenizer = read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  expect_error(tokenizer->encode(text, false, {.most_tokens = 100, .stop = {}}).status(), absl::StatusCode::kOutOfRange,
               "at least 25000 tokens");
  expect_error(tokenizer->encode(text, false, {.most_tokens = 25'000, .stop = {}}).status(),
               absl::StatusCode::kOutOfRange, "at least 1000000 tokens");
}

TEST(Tokenizer, TextThatBecomesNoTokenOrOneCountsAsSuch) {
  const EncodeLimits few{.most_tokens = 3, .stop = {}};
  const std::string unknown(1000, 'x'), spaces(1000, ' ');
  EXPECT_THAT(*read(bpe({"a"}, {}))->encode("a" + unknown, false, few), ElementsAre(0));
  Json fused = bpe({"a", "<unk>"}, {});
  fused["model"]["unk_token"] = "<unk>";
  fused["model"]["fuse_unk"] = true;
  EXPECT_THAT(*read(fused)->encode("a" + unknown, false, few), ElementsAre(0, 1));
  Json removing = bpe({"a"}, {});
  removing["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_THAT(*read(removing)->encode("a" + spaces + "a", false, few), ElementsAre(0, 0));
  Json stripping = bpe({"a", "<unk>"}, {});
  stripping["model"]["unk_token"] = "<unk>";
  stripping["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_THAT(*read(stripping)->encode(spaces + "a", false, few), ElementsAre(0));
  Json shortening = bpe({"a", "<unk>"}, {});
  shortening["model"]["unk_token"] = "<unk>";
  shortening["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", ""}};
  EXPECT_THAT(*read(shortening)->encode("a" + unknown, false, few), ElementsAre(0));
  for (const bool is_normalized : {false, true}) {
    Json taking = bpe({"a", "<unk>"}, {});
    taking["model"]["unk_token"] = "<unk>";
    taking["added_tokens"] = {{{"id", 2}, {"content", "!"}, {"lstrip", true}, {"normalized", is_normalized}}};
    EXPECT_THAT(*read(taking)->encode("a" + spaces + "!", false, few), ElementsAre(0, 2)) << is_normalized;
  }
}

TEST(Tokenizer, EncodingStopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  const auto tokenizer = Tokenizer::read(fixture("qwen2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  expect_error(tokenizer->encode("one text", false, {.stop = stop.get_token()}).status(), absl::StatusCode::kCancelled,
               "stopped");
}

TEST(Tokenizer, LeavesOutIdsThatAreNoText) {
  const auto tokenizer = Tokenizer::read(fixture("characters"));
  ASSERT_TRUE(tokenizer.ok());
  const Ids ids = {1, 13, 99, -4, 2};
  EXPECT_EQ(tokenizer->decode(ids), "12");
  EXPECT_EQ(tokenizer->decode(ids, /*with_special_tokens=*/true), "1<end>2");
}

TEST(Tokenizer, TellsTheBytesOfATokenThatCutsACharacter) {
  const auto bytes = [](const char* family, std::string_view token) {
    const auto tokenizer = Tokenizer::read(fixture(family));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    return tokenizer->bytes_of(tokenizer->id_of(token).value_or(-1));
  };
  EXPECT_EQ(bytes("qwen2", "\u00C3"), "\xC3");
  EXPECT_EQ(bytes("qwen2", "\u0120"), " ");
  EXPECT_EQ(bytes("qwen2", "<|im_end|>"), "<|im_end|>");
  EXPECT_EQ(bytes("llama2", "<0xE4>"), "\xE4");
  EXPECT_EQ(bytes("llama2", "<0x41>"), "A");
  EXPECT_EQ(bytes("llama2", "\u8A9E"), "\u8A9E");
  EXPECT_EQ(bytes("llama2", "no such token"), "");
}

TEST(Tokenizer, TellsIdsAndTokens) {
  const auto tokenizer = Tokenizer::read(fixture("qwen2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::int64_t end = tokenizer->id_of("<|im_end|>").value_or(-1);
  EXPECT_EQ(tokenizer->token_of(end), "<|im_end|>");
  EXPECT_TRUE(tokenizer->is_special(end));
  const std::int64_t think = tokenizer->id_of("<think>").value_or(-1);
  EXPECT_EQ(tokenizer->token_of(think), "<think>");
  EXPECT_FALSE(tokenizer->is_special(think));
  EXPECT_EQ(tokenizer->id_of("Ġ"), tokenizer->encode(" ")->front());
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->token_of(-1), std::nullopt);
  EXPECT_EQ(tokenizer->token_of(tokenizer->ids()), std::nullopt);
  EXPECT_EQ(tokenizer->ids(), 905) << "900 of the model, five beyond it";
}

TEST(Tokenizer, FindsTheLongestOfAddedTokensThatBeginTogether) {
  Json file = file_of("characters");
  for (const auto& [content, id] : {std::pair("<e", 15), std::pair("<end>=", 16)}) {
    file["added_tokens"].push_back(added(id, content));
  }
  const auto tokenizer = read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*tokenizer->encode("1<end>=2<end><e3"), ElementsAre(1, 16, 2, 13, 15, 3));
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("1<end>=2<end><e3")), "1<end>=2<e3");
}

TEST(Bpe, MergesByRankAndThenFromTheLeft) {
  const auto tokenizer = read(bpe({"a", "b", "c", "bc", "ab", "aa", "abc"}, {"b c", "a b", "a a", "ab c"}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokens_of(*tokenizer, "abc"), ElementsAre("a", "bc")) << "its text does not merge to that token";
  EXPECT_THAT(tokens_of(*tokenizer, "aab"), ElementsAre("a", "ab"));
  EXPECT_THAT(tokens_of(*tokenizer, "aaa"), ElementsAre("aa", "a"));
  std::string many;
  std::vector<std::string> expected;
  for (int i = 0; i < 100; ++i) {  // longer than what is merged without a heap
    many += "aabc";
    expected.insert(expected.end(), {"aa", "bc"});
  }
  EXPECT_EQ(tokens_of(*tokenizer, many), expected);
}

TEST(Bpe, TakesWholeTokensWhereItIgnoresMerges) {
  Json file = bpe({"a", "b", "c", "bc", "ab", "abc"}, {"b c", "a b", "ab c"});
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(tokens_of(*read(file), "abc"), ElementsAre("abc"));
}

TEST(Bpe, HasBytesAndThenAnUnknownToken) {
  Json file = bpe({"<unk>", "a", "<0xC3>", "<0xA9>"}, {});
  file["model"].update({{"unk_token", "<unk>"}, {"byte_fallback", true}});
  EXPECT_THAT(tokens_of(*read(file), "aéüüa"), ElementsAre("a", "<0xC3>", "<0xA9>", "<unk>", "<unk>", "a"));
  file["model"]["fuse_unk"] = true;
  EXPECT_THAT(tokens_of(*read(file), "aüüa"), ElementsAre("a", "<unk>", "a"));
  file["model"]["unk_token"] = "<nothing>";
  expect_error(read(file)->encode("ü").status(), absl::StatusCode::kInvalidArgument, "no token 'ü'");
  file["model"]["unk_token"] = nullptr;
  EXPECT_THAT(tokens_of(*read(file), "aüa"), ElementsAre("a", "a")) << "as Hugging Face's tokenizers";
}

TEST(AddedTokens, TakeSpaceAndAskForWholeWords) {
  Json file = bpe({"a", " ", "x"}, {});
  const auto with = [&](const char* option) {
    Json token = added(3, "<t>");
    token[option] = true;
    file["added_tokens"] = {token};
    return tokens_of(*read(file), "a  <t> a<t>a");
  };
  EXPECT_THAT(with("lstrip"), ElementsAre("a", "<t>", " ", "a", "<t>", "a"));
  EXPECT_THAT(with("rstrip"), ElementsAre("a", " ", " ", "<t>", "a", "<t>", "a"));
  EXPECT_THAT(with("single_word"), ElementsAre("a", " ", " ", "<t>", " ", "a", "a")) << "< is no token here";
}

// Like tokenizers 0.23.3, which drops an empty match.
TEST(AddedTokens, OnesThatAreSpaceAreNotFoundWhereTheLastOneTookThem) {
  Json file = bpe({"a", "\n", "b"}, {});
  Json before = added(3, "<t>"), space = added(1, "\n");
  before["rstrip"] = true;
  space["lstrip"] = true;
  file["added_tokens"] = {before, space};
  EXPECT_THAT(tokens_of(*read(file), "<t>\na"), ElementsAre("<t>", "a"));
  EXPECT_THAT(tokens_of(*read(file), "<t>a\n"), ElementsAre("<t>", "a", "\n"));
  EXPECT_THAT(tokens_of(*read(file), "<t>\n\n\na"), ElementsAre("<t>", "a")) << "here tokenizers panics";
  space["rstrip"] = true;
  file["added_tokens"] = {before, space};
  EXPECT_THAT(tokens_of(*read(file), "<t>\n\na\n\nb"), ElementsAre("<t>", "a", "\n", "b"));
  space["lstrip"] = space["rstrip"] = false;
  file["added_tokens"] = {before, space};
  EXPECT_THAT(tokens_of(*read(file), "<t>\na"), ElementsAre("<t>", "\n", "a")) << "it is found again";
}

TEST(AddedTokens, AreSoughtBeforeOrAfterNormalizing) {
  Json file = bpe({"a", "_", "<", "s", ">"}, {});
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}};
  file["added_tokens"] = {added(5, "a s"), added(6, "s s")};
  file["added_tokens"][1]["normalized"] = true;
  EXPECT_THAT(tokens_of(*read(file), "a s s_s"), ElementsAre("a s", "_", "s s"));
}

// As transformers, which resets both before it encodes a text.
TEST(Tokenizer, NeitherTruncatesNorPadsAlthoughTheFileSaysSo) {
  const Json plain = file_of("characters");
  Json tuned = plain;
  tuned["truncation"] = {{"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  tuned["padding"] = {{"strategy", {{"Fixed", 64}}},
                      {"direction", "Left"},
                      {"pad_to_multiple_of", nullptr},
                      {"pad_id", 0},
                      {"pad_type_id", 0},
                      {"pad_token", "<pad>"}};
  const auto expected = read(plain), found = read(tuned);
  ASSERT_TRUE(found.ok()) << found.status();
  const std::string text = "12+34=46";
  EXPECT_THAT(tokens_of(*found, text), testing::SizeIs(testing::Gt(2u)));
  for (const bool special : {false, true}) EXPECT_EQ(*found->encode(text, special), *expected->encode(text, special));
  EXPECT_EQ(found->fingerprint(), expected->fingerprint()) << "engines with and without them serve the same model";
}

TEST(Tokenizer, RefusesOtherPartsByName) {
  const auto refused = [](const char* part, const Json& value, const std::string& text) {
    Json file = file_of("characters");
    if (std::string_view(part) == "model") {
      file[part].update(value);
    } else {
      file[part] = value;
    }
    const absl::Status status = read(file).status();
    expect_error(status, absl::StatusCode::kUnimplemented, text);
    expect_error(status, absl::StatusCode::kUnimplemented, "can be served by token ids");
    expect_error(status, absl::StatusCode::kUnimplemented, "tokenizer.json: ");
  };
  refused("pre_tokenizer", {{"type", "BertPreTokenizer"}}, "pre_tokenizer BertPreTokenizer is not supported");
  refused("normalizer", {{"type", "BertNormalizer"}}, "normalizer BertNormalizer is not supported");
  refused("normalizer", {{"type", "Prepend"}, {"prepend", ""}}, "normalizer Prepend of an empty text is not supported");
  refused("post_processor", {{"type", "RobertaProcessing"}}, "post_processor RobertaProcessing");
  refused("decoder", {{"type", "WordPiece"}}, "decoder WordPiece is not supported");
  refused("model", {{"type", "Unigram"}}, "model Unigram is not supported");
  refused("model", {{"type", "BPE"}, {"dropout", 0.1}}, "model BPE with dropout 0.1");
  refused("model", {{"type", "BPE"}, {"end_of_word_suffix", "</w>"}}, "model BPE with end_of_word_suffix");
}

TEST(Tokenizer, SaysWhatIsMalformed) {
  const auto wrong = [](const char* part, const Json& value, const std::string& text) {
    Json file = file_of("characters");
    file[part] = value;
    expect_error(read(file).status(), absl::StatusCode::kInvalidArgument, text);
  };
  const auto with_merges = [](const Json& merges) {
    return Json{{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", merges}};
  };
  wrong("model", 3, "no object 'model'");
  wrong("model", Json::object(), "expected a type");
  wrong("model", {{"type", "WordLevel"}}, "no object 'vocab'");
  wrong("model", {{"type", "WordLevel"}, {"vocab", {{"a", -1}}}}, "'a': expected an id, found -1");
  wrong("model", {{"type", "WordLevel"}, {"vocab", {{"a", 1 << 24}}}}, "'a': expected an id, found 16777216");
  wrong("model", {{"type", "WordLevel"}, {"vocab", {{"a", 1}, {"b", 1}}}}, "two tokens have the id 1");
  wrong("model", with_merges("a b"), "no list 'merges'");
  wrong("model", with_merges({"a b c"}), "merges: expected [\"a\", \"b\"] or \"a b\", found \"a b c\"");
  wrong("model", with_merges({"a b"}), "the vocabulary has no 'ab'");
  wrong("added_tokens", {{{"id", 1}}}, "expected an id and a content");
  wrong("added_tokens", {added(13, "<end>"), added(13, "<end>")}, "two have the content or the id");
  wrong("added_tokens", Json::array({added(20, "<new>")}), "'<new>': expected the id 15");
  wrong("added_tokens", 4, "added_tokens is not a list");
  wrong("post_processor", {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}},
        "ids of '<s>'");
  wrong("post_processor",
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}},
         {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {900}}}}}}},
        "expected ids of tokens, found 900");
  expect_error(Tokenizer::read("/no/such/folder").status(), absl::StatusCode::kNotFound, "tokenizer.json");
}

TEST(Tokenizer, HasAFingerprintOfAllThatCounts) {
  const Json file = file_of("llama2");
  const std::string whole = read(file)->fingerprint();
  const auto differs = [&](const char* what, const auto& change) {
    Json other = file;
    change(other);
    const auto tokenizer = read(other);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    EXPECT_NE(tokenizer->fingerprint(), whole) << what;
  };
  differs("normalizer", [](Json& f) { f["normalizer"]["normalizers"].erase(0); });
  differs("pre_tokenizer", [](Json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  differs("post_processor", [](Json& f) { f["post_processor"] = nullptr; });
  differs("decoder", [](Json& f) { f["decoder"]["decoders"].erase(3); });
  differs("merges", [](Json& f) { std::swap(f["model"]["merges"][0], f["model"]["merges"][1]); });
  differs("vocab", [](Json& f) { std::swap(f["model"]["vocab"]["<0x00>"], f["model"]["vocab"]["<0x01>"]); });
  differs("fuse_unk", [](Json& f) { f["model"]["fuse_unk"] = false; });
  differs("special", [](Json& f) { f["added_tokens"][1]["special"] = false; });
}

}  // namespace
}  // namespace bascule::ref
