#include <bascule/trainer_ref/model/tokenizer.h>

#include <nlohmann/json.hpp>

#include "support.h"

namespace bascule::ref {
namespace {

using nlohmann::json;

json characters() { return json::parse(std::ifstream(fixture("tokenizer") / "tokenizer.json")); }

absl::StatusOr<Tokenizer> read(const json& file) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", file.dump());
  return Tokenizer::read(folder.path());
}

TEST(Tokenizer, AgreesWithHuggingFaces) {
  const auto tokenizer = Tokenizer::read(fixture("tokenizer"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const json cases = json::parse(std::ifstream(fixture("tokenizer") / "expected.json"));
  ASSERT_GE(cases.size(), 5u);
  for (const json& item : cases) {
    const auto ids = tokenizer->encode(item["text"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(json(*ids), item["ids"]) << item["text"];
    EXPECT_EQ(tokenizer->decode(*ids), item["decoded"].get<std::string>());
  }
}

TEST(Tokenizer, NamesWhatTheVocabularyLacks) {
  const auto tokenizer = Tokenizer::read(fixture("tokenizer"));
  ASSERT_TRUE(tokenizer.ok());
  expect_error(tokenizer->encode("12x").status(), absl::StatusCode::kInvalidArgument, "no token 'x'");
  expect_error(tokenizer->encode("1ü2").status(), absl::StatusCode::kInvalidArgument, "no token 'ü'");
  for (const char* bytes : {"1\xff", "\xc3", "\xe2\x82", "\x80"}) {
    expect_error(tokenizer->encode(bytes).status(), absl::StatusCode::kInvalidArgument, "not UTF-8");
  }
}

TEST(Tokenizer, LeavesOutIdsThatAreNoText) {
  const auto tokenizer = Tokenizer::read(fixture("tokenizer"));
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<std::int64_t> ids = {1, 13, 99, -4, 2};
  EXPECT_EQ(tokenizer->decode(ids), "12");
}

TEST(Tokenizer, FindsTheLongestOfAddedTokensThatBeginTogether) {
  json file = characters();
  for (const auto& [content, id] : {std::pair("<e", 14), std::pair("<end>=", 15)}) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", false}});
  }
  const auto tokenizer = read(file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*tokenizer->encode("1<end>=2<end><e3"), testing::ElementsAre(1, 15, 2, 13, 14, 3));
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("1<end>=2<end><e3")), "1<end>=2<e3");
}

TEST(Tokenizer, RefusesOtherPartsByName) {
  const auto refused = [](const char* part, json value, const std::string& text) {
    json file = characters();
    file[part] = std::move(value);
    const absl::Status status = read(file).status();
    expect_error(status, absl::StatusCode::kUnimplemented, text);
    expect_error(status, absl::StatusCode::kUnimplemented, "can be served by token ids");
  };
  refused("pre_tokenizer", {{"type", "ByteLevel"}}, "pre_tokenizer \"ByteLevel\" is not read here");
  refused("pre_tokenizer",
          {{"type", "Split"}, {"pattern", {{"Regex", "\\s"}}}, {"behavior", "Isolated"}, {"invert", false}},
          "pre_tokenizer {");
  refused("normalizer", {{"type", "NFC"}}, "normalizer \"NFC\" is not read here");
  refused("post_processor", {{"type", "TemplateProcessing"}}, "post_processor \"TemplateProcessing\"");
  refused("decoder", {{"type", "Metaspace"}}, "decoder \"Metaspace\" is not read here");
  refused("model", {{"type", "BPE"}}, "model \"BPE\" is not read here");
}

TEST(Tokenizer, SaysWhatIsMalformed) {
  const auto wrong = [](const char* part, json value, const std::string& text) {
    json file = characters();
    file[part] = std::move(value);
    expect_error(read(file).status(), absl::StatusCode::kInvalidArgument, text);
  };
  wrong("model", 3, "no object 'model'");
  wrong("model", {{"type", "WordLevel"}}, "no object 'vocab'");
  wrong("model", {{"type", "WordLevel"}, {"vocab", {{"a", -1}}}}, "'a': expected an id, found -1");
  wrong("model", {{"type", "WordLevel"}, {"vocab", {{"a", 1}, {"b", 1}}}}, "two tokens have the id 1");
  wrong("added_tokens", {{{"id", 1}}}, "expected an id and a content");
  wrong("added_tokens", 4, "added_tokens is not a list");
  expect_error(Tokenizer::read("/no/such/folder").status(), absl::StatusCode::kNotFound, "tokenizer.json");
}

}  // namespace
}  // namespace bascule::ref
