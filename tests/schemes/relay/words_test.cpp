// Words come back as they were said, and any bytes are safe.
#include <bascule/schemes/relay/words.h>

#include <gmock/gmock.h>

#include "support/schemes/any_words.h"

namespace bascule::inline v0::relay {
namespace {

using absl::StatusCode;
using test::StatusIs;
using testing::HasSubstr;

Word a_word(Word::Kind kind) {
  return {.kind = kind,
          .number = 1ULL << 63,
          .source = ~0ULL,
          .whole = true,
          .spared = {1, 1ULL << 40},
          .place = std::string("\0\xff\x80 GPU", 7),
          .allocated = 1ULL << 50,
          .why = "é"};
}

TEST(RelayWords, ComeBackAsTheyWereSaid) {
  for (int kind = 0; kind <= static_cast<int>(Word::Kind::kForget); ++kind) {
    const Word word = a_word(static_cast<Word::Kind>(kind));
    const absl::StatusOr<Word> back = parse_word(to_bytes(word));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kind, word.kind);
    EXPECT_EQ(back->number, word.number);
    EXPECT_EQ(back->source, word.source);
    EXPECT_EQ(back->whole, word.whole);
    EXPECT_EQ(back->spared, word.spared);
    EXPECT_EQ(back->place, word.place);
    EXPECT_EQ(back->allocated, word.allocated);
    EXPECT_EQ(back->why, word.why);
  }
}

TEST(RelayWords, ALongReasonIsCutAndStillAWord) {
  test::expect_a_long_reason_is_cut(a_word(Word::Kind::kCannot), parse_word);
}

TEST(RelayWords, AnyBytesAreSafe) { test::expect_any_bytes_are_safe(a_word(Word::Kind::kTake), parse_word, "relay"); }

TEST(RelayWords, AWordSparesNoMoreVersionsThanItMay) {
  Word word = a_word(Word::Kind::kTake);
  word.spared.assign(64, 7);
  EXPECT_TRUE(parse_word(to_bytes(word)).ok());
  word.spared.assign(65, 7);
  EXPECT_THAT(parse_word(to_bytes(word)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("relay")));
}

}  // namespace
}  // namespace bascule::inline v0::relay
