#include <algorithm>

#include "support.h"
#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/trainer_ref/text/token_decoder.h>

namespace bascule::ref {
namespace {

using testing::ElementsAre;

// The text that each token makes whole, and what is left at the end.
std::vector<std::string> pieces_of(const Json& part, const std::vector<std::string>& tokens) {
  const auto decoder = TokenDecoder::read(Json::parse(part.dump()));  // numbers as a file has them
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  if (!decoder.ok()) return {};
  const auto stages = decoder->stages();
  auto& joined = dynamic_cast<JoinStage&>(*stages.back());
  std::vector<std::string> pieces;
  for (const std::string& token : tokens) {
    stages.front()->take(token, true);
    pieces.push_back(std::exchange(joined.text(), {}));
  }
  stages.front()->finish();
  pieces.push_back(joined.text());
  return pieces;
}

Json replace(const Json& pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}
Json strip(int start, int stop) { return {{"type", "Strip"}, {"content", " "}, {"start", start}, {"stop", stop}}; }
Json sequence(const Json& list) { return {{"type", "Sequence"}, {"decoders", list}}; }
const Json kFuse = {{"type", "Fuse"}};
const Json kFallback = {{"type", "ByteFallback"}};

TEST(TokenDecoder, JoinsBySpacesWhereThereIsNone) {
  EXPECT_THAT(pieces_of(nullptr, {"a", "b", ""}), ElementsAre("a", " b", " ", ""));
}

TEST(TokenDecoder, HoldsBackACutCharacter) {
  const Json byte_level = {{"type", "ByteLevel"}};
  EXPECT_THAT(pieces_of(byte_level, {"Ġa", "â", "Ĥ", "¬Ċ"}), ElementsAre(" a", "", "", "€\n", ""));
  EXPECT_THAT(pieces_of(byte_level, {"â", "a", "Ĥ"}), ElementsAre("", "\uFFFDa", "\uFFFD", ""));
  EXPECT_THAT(pieces_of(byte_level, {"aâĤ"}), ElementsAre("a", "\uFFFD"));
}

TEST(TokenDecoder, HoldsBackARunOfBytes) {
  EXPECT_THAT(pieces_of(kFallback, {"a", "<0xE2>", "<0x82>", "<0xAC>", "b"}), ElementsAre("a", "", "", "", "€b", ""));
  EXPECT_THAT(pieces_of(kFallback, {"<0x61>", "<0xE2>", "b"}), ElementsAre("", "", "\uFFFD\uFFFDb", ""));
  EXPECT_THAT(pieces_of(kFallback, {"<0x0A>"}), ElementsAre("", "\n"));
  EXPECT_THAT(pieces_of(kFallback, {"<0xZZ>", "<0x1>"}), ElementsAre("<0xZZ>", "<0x1>", ""));
}

TEST(TokenDecoder, StripsWhereTheTextBeginsAndEnds) {
  EXPECT_THAT(pieces_of(sequence({kFuse, strip(1, 0)}), {" ", "  a", " b"}), ElementsAre("", "  a", " b", ""));
  EXPECT_THAT(pieces_of(sequence({kFuse, strip(0, 2)}), {"a ", "  ", "b", "   "}),
              ElementsAre("a", " ", "  b", " ", ""));
  EXPECT_THAT(pieces_of(strip(1, 1), {" a ", "b ", "  c"}), ElementsAre("a", "b", " c", ""));
}

TEST(TokenDecoder, ReplacesTextsAndRegularExpressions) {
  const Json space = replace({{"String", "▁"}}, " "), digits = replace({{"Regex", "[0-9]+"}}, "#");
  EXPECT_THAT(pieces_of(sequence({space, kFuse}), {"▁a▁", "b"}), ElementsAre(" a ", "b", ""));
  EXPECT_THAT(pieces_of(digits, {"a12", "3"}), ElementsAre("a#", "#", ""));
  EXPECT_THAT(pieces_of(sequence({kFuse, digits}), {"a12", "3"}), ElementsAre("", "", "a#"));
  EXPECT_THAT(pieces_of(replace({{"String", "ab"}}, "-"), {"xab", "a", "b"}), ElementsAre("x-", "a", "b", ""));
}

TEST(TokenDecoder, LeavesOutTheSpaceThatEncodingPutBefore) {
  const auto metaspace = [](const char* scheme) {
    return Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
  };
  EXPECT_THAT(pieces_of(metaspace("always"), {"▁a", "▁b"}), ElementsAre("a", " b", ""));
  EXPECT_THAT(pieces_of(metaspace("never"), {"▁a", "▁b"}), ElementsAre(" a", " b", ""));
}

TEST(TokenDecoder, NamesWhatItDoesNotRead) {
  const auto status = [](const Json& part) { return TokenDecoder::read(part).status(); };
  expect_error(status({{"type", "WordPiece"}}), absl::StatusCode::kUnimplemented, "decoder WordPiece is not supported");
  expect_error(status(sequence({kFuse, {{"type", "CTC"}}})), absl::StatusCode::kUnimplemented, "decoder CTC");
  expect_error(status(strip(-1, 0)), absl::StatusCode::kInvalidArgument, "start: expected a count, found -1");
  expect_error(status({{"type", "Strip"}, {"content", "ab"}}), absl::StatusCode::kInvalidArgument,
               "expected one character");
}

TEST(TextStream, LivesLongerThanItsTokenizer) {
  auto tokenizer = Tokenizer::read(fixture("qwen2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Ids token_ids = *tokenizer->encode("größer <think> 日本");
  TextStream stream = tokenizer->stream();
  tokenizer = absl::UnavailableError("gone");
  std::string text;
  for (const std::int64_t id : token_ids) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "größer <think> 日本");
}

// What the whole text has beyond the prompt's text alone.
std::string text_beyond(const Tokenizer& tokenizer, const Ids& prompt, const Ids& whole) {
  const std::string before = tokenizer.decode(prompt), all = tokenizer.decode(whole);
  std::size_t same = 0;
  while (same < std::min(before.size(), all.size()) && before[same] == all[same]) ++same;
  while (same < all.size() && (static_cast<unsigned char>(all[same]) & 0xC0U) == 0x80U) --same;
  return all.substr(same);
}

TEST(TextStream, GoesOnAfterAPrompt) {
  const std::string words = "one two  three\nfour";
  for (const char* family : {"llama2", "metaspace", "qwen2", "gemma"}) {
    const auto tokenizer = Tokenizer::read(fixture(family));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string& text :
         {words, std::string("語🌶é한 ไทย 🌶🌶🌶🌶 语"), words + words + " 語語語語語語" + words}) {
      const Ids whole = *tokenizer->encode(text, /*add_special_tokens=*/true);
      for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
        const Ids prompt(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut));
        TextStream stream = tokenizer->stream();
        const auto tail = stream.tail_of(prompt);
        EXPECT_LE(tail.size(), 64u) << "a prompt may be long";
        stream.follow(tail);
        std::string found;
        for (std::size_t i = cut; i < whole.size(); ++i) found += stream.push(whole[i]);
        found += stream.finish();
        EXPECT_EQ(found, text_beyond(*tokenizer, prompt, whole)) << family << " after " << tokenizer->decode(prompt);
      }
    }
  }
}

// The first word of a completion is not the first of the text.
TEST(TextStream, AfterAPromptBeginsWithItsSpace) {
  const auto tokenizer = Tokenizer::read(fixture("llama2"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Ids word = *tokenizer->encode("a"), start = {tokenizer->id_of("<s>").value_or(-1)};
  const auto after = [&](const Ids& prompt) {
    TextStream stream = tokenizer->stream();
    stream.follow(prompt);
    std::string text;
    for (const std::int64_t token : word) text += stream.push(token);
    return text + stream.finish();
  };
  EXPECT_EQ(after(word), " a");
  EXPECT_EQ(after(start), "a") << "special tokens are no text";
}

}  // namespace
}  // namespace bascule::ref
