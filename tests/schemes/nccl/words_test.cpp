// Words come back as they were said, and any bytes are safe.
#include <bascule/schemes/nccl/words.h>

#include <gmock/gmock.h>

#include "support/schemes/any_words.h"

namespace bascule::inline v0::nccl {
namespace {

Word a_word(Word::Kind kind) {
  Word word{
      .kind = kind, .group = ~0ULL, .rank = 3, .ranks = 1024, .number = 1ULL << 63, .from = 1ULL << 40, .why = "é"};
  for (std::size_t i = 0; i < word.id.bytes.size(); ++i) word.id.bytes[i] = static_cast<char>(i * 37);
  return word;
}

TEST(NcclWords, ComeBackAsTheyWereSaid) {
  for (int kind = 0; kind <= static_cast<int>(Word::Kind::kFailed); ++kind) {
    const Word word = a_word(static_cast<Word::Kind>(kind));
    const absl::StatusOr<Word> back = parse_word(to_bytes(word));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kind, word.kind);
    EXPECT_EQ(back->group, word.group);
    EXPECT_EQ(back->rank, word.rank);
    EXPECT_EQ(back->ranks, word.ranks);
    EXPECT_EQ(back->id.bytes, word.id.bytes);
    EXPECT_EQ(back->number, word.number);
    EXPECT_EQ(back->from, word.from);
    EXPECT_EQ(back->why, word.why);
  }
}

TEST(NcclWords, ALongReasonIsCutAndStillAWord) {
  test::expect_a_long_reason_is_cut(a_word(Word::Kind::kFailed), parse_word);
}

TEST(NcclWords, AnyBytesAreSafe) { test::expect_any_bytes_are_safe(a_word(Word::Kind::kMake), parse_word, "nccl"); }

}  // namespace
}  // namespace bascule::inline v0::nccl
