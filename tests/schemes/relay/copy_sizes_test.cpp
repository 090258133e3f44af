#include <bascule/schemes/relay/copy_sizes.h>

#include <gmock/gmock.h>

#include <vector>

namespace bascule::inline v0::relay {
namespace {

using testing::ElementsAre;

std::vector<std::uint64_t> sizes_of(const CopySizes& sizes, std::uint64_t there) {
  std::vector<std::uint64_t> copies;
  for (std::uint64_t asked = 0; std::min(asked + sizes.piece, sizes.bytes) <= there && asked < sizes.bytes;) {
    const std::uint64_t end = sizes.end(asked, there);
    copies.push_back(end - asked);
    asked = end;
  }
  return copies;
}

TEST(CopySizes, OfAVersionThatIsHandedOnAreSinglePieces) {
  EXPECT_THAT(sizes_of({.bytes = 63, .piece = 10, .handed_on = true}, 63), ElementsAre(10, 10, 10, 10, 10, 10, 3));
}

TEST(CopySizes, AreLargeUntilTheEndComesNear) {
  const CopySizes sizes{.bytes = 163, .piece = 10};
  EXPECT_THAT(sizes_of(sizes, 163), ElementsAre(40, 40, 40, 20, 10, 10, 3));
  EXPECT_EQ(sizes.ahead(), 80U);
}

TEST(CopySizes, AreWholePiecesOfWhatIsThere) {
  EXPECT_THAT(sizes_of({.bytes = 163, .piece = 10}, 77), ElementsAre(40, 30));
  EXPECT_THAT(sizes_of({.bytes = 163, .piece = 10}, 9), ElementsAre());
}

TEST(CopySizes, OfASmallVersion) {
  EXPECT_THAT(sizes_of({.bytes = 7, .piece = 10}, 7), ElementsAre(7));
  EXPECT_THAT(sizes_of({.bytes = 10, .piece = 10}, 10), ElementsAre(10));
  EXPECT_THAT(sizes_of({.bytes = 25, .piece = 10}, 25), ElementsAre(10, 10, 5));
}

}  // namespace
}  // namespace bascule::inline v0::relay
