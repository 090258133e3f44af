#include <bascule/trainer_ref/engine/schedule/step.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

Row row(std::size_t begin, std::size_t count) { return {nullptr, begin, count}; }

TEST(PaddedGroups, SingleTokensOfLikeContextsAreOneGroup) {
  EXPECT_THAT(padded_groups(std::vector<Row>{row(9, 1), row(20, 1), row(3, 1)}), ElementsAre(ElementsAre(2, 0, 1)));
}

TEST(PaddedGroups, ALongPromptDoesNotPadSingleTokens) {
  EXPECT_THAT(padded_groups(std::vector<Row>{row(9, 1), row(0, 500), row(3, 1)}),
              ElementsAre(ElementsAre(2, 0), ElementsAre(1)));
}

TEST(PaddedGroups, ALongContextDoesNotPadShortOnes) {
  EXPECT_THAT(padded_groups(std::vector<Row>{row(4000, 1), row(9, 1), row(3000, 1)}),
              ElementsAre(ElementsAre(1), ElementsAre(2, 0)));
}

TEST(PaddedGroups, PaddingAtMostDoublesPrompts) {
  const std::vector<Row> rows{row(0, 2), row(0, 3), row(0, 4), row(0, 8), row(0, 9)};
  EXPECT_THAT(padded_groups(rows), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4)));
}

TEST(PaddedGroups, EveryRowIsInOneGroup) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < 200; ++i) rows.push_back(row((i * 37) % 500, 1 + (i * 13) % 90));
  std::vector<int> seen(rows.size());
  for (const auto& group : padded_groups(rows))
    for (const std::size_t i : group) ++seen[i];
  EXPECT_THAT(seen, ::testing::Each(1));
  EXPECT_THAT(padded_groups({}), SizeIs(0));
}

}  // namespace
}  // namespace bascule::ref
