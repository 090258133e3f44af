// Compares every family's fixtures with Hugging Face's `tokenizers` on the same file (tests/tools/compare-tokenizers).
#include <thread>

#include "support.h"
#include <bascule/trainer_ref/text/text_stream.h>

namespace bascule::ref {
namespace {

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(BASCULE_FIXTURES)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& token_ids) {
  TextStream stream = tokenizer.stream();
  std::string text;
  for (const std::int64_t id : token_ids) {
    text += stream.push(id);
    EXPECT_NO_THROW(Json(text).dump()) << "a piece ends within a character";
  }
  return text + stream.finish();
}

void expect_agreement(const Tokenizer& tokenizer, const Json& item) {
  SCOPED_TRACE(item["value"].dump());
  Ids token_ids;
  if (item["value"].is_array()) {
    token_ids = item["value"].get<Ids>();
  } else {
    const auto text = item["value"].get<std::string>();
    const auto alone = tokenizer.encode(text), all = tokenizer.encode(text, /*add_special_tokens=*/true);
    ASSERT_TRUE(alone.ok()) << alone.status();
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(Json(*alone), item["ids"]);
    EXPECT_EQ(Json(*all), item.value("all_ids", item["ids"]));
    token_ids = *all;
    EXPECT_EQ(tokenizer.encode(text, true, {.most_tokens = alone->size(), .stop = {}}).value_or(Ids()), *all);
    if (!alone->empty()) {
      EXPECT_EQ(tokenizer.encode(text, true, {.most_tokens = alone->size() - 1, .stop = {}}).status().code(),
                absl::StatusCode::kOutOfRange);
    }
  }
  EXPECT_EQ(tokenizer.decode(token_ids), item["decoded"]);
  EXPECT_EQ(tokenizer.decode(token_ids, /*with_special_tokens=*/true), item.value("special", item["decoded"]));
  EXPECT_EQ(streamed(tokenizer, token_ids), item["decoded"]);
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, AgreeWithHuggingFaces) {
  const auto tokenizer = Tokenizer::read(fixture(GetParam()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json cases = Json::parse(std::ifstream(fixture(GetParam()) / "expected.json"));
  ASSERT_GE(cases.size(), 100u);
  for (const Json& item : cases) expect_agreement(*tokenizer, item);
}

TEST_P(Families, AreThoseOfTheSameFileWrittenOtherwise) {
  const Json file = file_of(GetParam());
  Json other = file;
  if (other["model"].contains("merges")) {
    for (Json& pair : other["model"]["merges"]) pair = cat(pair[0].get<std::string>(), " ", pair[1].get<std::string>());
    other["model"].erase("dropout");
    if (!file["model"].value("byte_fallback", false)) other["model"].erase("type");
  }
  other.erase("version");
  const auto one = read(file), another = read(other);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_EQ(one->fingerprint(), another->fingerprint());
  EXPECT_THAT(one->fingerprint(), testing::MatchesRegex("[0-9a-f]{32}"));
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(families()), [](const auto& info) { return info.param; });

TEST(Families, HaveDifferentFingerprints) {
  std::set<std::string> seen;
  for (const std::string& name : families()) seen.insert(Tokenizer::read(fixture(name))->fingerprint());
  EXPECT_EQ(seen.size(), families().size());
}

TEST(Families, AreReadByThreadsAtOnce) {
  const auto tokenizer = Tokenizer::read(fixture("qwen2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json cases = Json::parse(std::ifstream(fixture("qwen2") / "expected.json"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, copy = *tokenizer] {
      for (const Json& item : cases) expect_agreement(copy, item);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace bascule::ref
