#include <bascule/trainer_ref/text/pre_tokenizer.h>

#include "support.h"

namespace bascule::ref {
namespace {

using testing::ElementsAre;

std::vector<std::string> words_of(const Json& part, std::string text, bool at_start = true) {
  const auto pre_tokenizer = PreTokenizer::read(part);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  PreTokens pre_tokens(std::move(text), at_start);
  if (!pre_tokenizer.ok() || !pre_tokenizer->apply(pre_tokens).ok()) return {"failed"};
  std::vector<std::string> list;
  for (const PreToken& pre_token : pre_tokens.list) list.emplace_back(pre_tokens.of(pre_token));
  return list;
}

Json split(const Json& pattern, const char* behavior, bool inverted = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", inverted}};
}

// The example of Hugging Face's documentation.
TEST(Split, HasFiveBehaviors) {
  const Json dash = {{"String", "-"}};
  const std::string text = "the-final--countdown";
  EXPECT_THAT(words_of(split(dash, "Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(words_of(split(dash, "Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(words_of(split(dash, "MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(words_of(split(dash, "MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(words_of(split(dash, "Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(Split, CutsByWhatLiesBetweenMatchesWhereItIsInverted) {
  EXPECT_THAT(words_of(split({{"Regex", "[a-z]+"}}, "Removed", true), "ab, cd!"), ElementsAre("ab", "cd"));
  EXPECT_THAT(words_of(split({{"Regex", "[a-z]+"}}, "Isolated", true), "ab, cd!"), ElementsAre("ab", ", ", "cd", "!"));
}

Json metaspace(const char* scheme, bool splits) {
  return {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", splits}};
}

TEST(Metaspace, PrependsBeforeEachTextOrTheFirst) {
  EXPECT_THAT(words_of(metaspace("always", true), "a b  c", false), ElementsAre("_a", "_b", "_", "_c"));
  EXPECT_THAT(words_of(metaspace("always", false), "a b", false), ElementsAre("_a_b"));
  EXPECT_THAT(words_of(metaspace("first", false), "a b", true), ElementsAre("_a_b"));
  EXPECT_THAT(words_of(metaspace("first", false), "a b", false), ElementsAre("a_b"));
  EXPECT_THAT(words_of(metaspace("never", true), "a b"), ElementsAre("a", "_b"));
  EXPECT_THAT(words_of(metaspace("always", false), " a"), ElementsAre("_a"));
  const Json old = {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}};
  EXPECT_THAT(words_of(old, "a b"), ElementsAre("a", "_b"));
}

TEST(PreTokenizer, RunsASequenceInOrder) {
  const Json sequence = {{"type", "Sequence"},
                         {"pretokenizers",
                          {{{"type", "WhitespaceSplit"}},
                           {{"type", "Digits"}, {"individual_digits", true}},
                           {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}}}};
  EXPECT_THAT(words_of(sequence, "ab 12\té"), ElementsAre("Ġab", "Ġ1", "Ġ2", "ĠÃ©"));
}

TEST(PreTokenizer, KnowsWordsDigitsAndPunctuation) {
  EXPECT_THAT(words_of({{"type", "Whitespace"}}, "naïve_1, ok?! ½"), ElementsAre("naïve_1", ",", "ok", "?!", "½"));
  EXPECT_THAT(words_of({{"type", "Punctuation"}, {"behavior", "Isolated"}}, "a,b$«c»"),
              ElementsAre("a", ",", "b", "$", "«", "c", "»"));
  EXPECT_THAT(words_of({{"type", "Digits"}, {"individual_digits", false}}, "a12½b"), ElementsAre("a", "12½", "b"));
  EXPECT_THAT(words_of({{"type", "ByteLevel"}}, "it's 5  x"), ElementsAre("it", "'s", "Ġ5", "Ġ", "Ġx"));
}

TEST(PreTokenizer, NamesWhatItDoesNotRead) {
  const auto status = [](const Json& part) { return PreTokenizer::read(part).status(); };
  expect_error(status({{"type", "BertPreTokenizer"}}), absl::StatusCode::kUnimplemented,
               "pre_tokenizer BertPreTokenizer");
  expect_error(status(split({{"String", "-"}}, "Sideways")), absl::StatusCode::kUnimplemented, "\"Sideways\"");
  expect_error(status(split({{"Regex", "\\h"}}, "Isolated")), absl::StatusCode::kUnimplemented, "'\\h'");
  expect_error(status(metaspace("second", true)), absl::StatusCode::kUnimplemented, "prepend_scheme 'second'");
  expect_error(status(split({{"Text", "-"}}, "Isolated")), absl::StatusCode::kInvalidArgument, "expected a pattern");
  expect_error(status({{"type", "Sequence"}}), absl::StatusCode::kInvalidArgument, "expected a list 'pretokenizers'");
  expect_error(status({{"kind", "Split"}}), absl::StatusCode::kInvalidArgument, "expected an object with a type");
}

}  // namespace
}  // namespace bascule::ref
