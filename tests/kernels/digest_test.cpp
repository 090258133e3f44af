#include <bascule/kernels/digest.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "processors.h"
#include <bascule/kernels/digest_function.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels {
namespace {

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The bytes of the vectors in docs/design/digest.md.
std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 167 + (i >> 8) * 13 + (i >> 16) * 5);
  return bytes;
}

TEST(DigestKeys, AreThoseOfTheDocument) {
  EXPECT_EQ(kDigestKeys.first()[0], 0xe220a8397b1dcdaf);
  EXPECT_EQ(kDigestKeys.first()[511], 0x4980af326a4b65d8);
  EXPECT_EQ(kDigestKeys.second()[0], 0x2a7b67af6c6ad50e);
  EXPECT_EQ(kDigestKeys.second()[511], 0x54238caebf32828c);
}

// The premise of the proofs in docs/design/digest.md: no half occurs twice, so the two sums never share one at any
// place.
TEST(DigestKeys, HaveHalvesThatAllDiffer) {
  std::set<std::uint64_t> low, high;
  for (const std::uint64_t key : kDigestKeys.keys) {
    low.insert(key & 0xffffffff);
    high.insert(key >> 32);
  }
  EXPECT_EQ(low.size(), kKeys);
  EXPECT_EQ(high.size(), kKeys);
}

class DigestOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  Digest of(std::span<const std::byte> bytes, int threads = 1) const {
    ThreadPool pool(threads);
    return digest(bytes, pool, *GetParam().processor);
  }
};

TEST_P(DigestOn, GivesTheVectorsOfTheDocument) {
  EXPECT_EQ(to_hex(of({})), "48218226ff3cd4bf31042cc5515af7ee");
  EXPECT_EQ(to_hex(of(std::vector<std::byte>(1))), "00b2c59e3d88d2faf783ed82af89eeb3");
  EXPECT_EQ(to_hex(of(std::as_bytes(std::span("abc", 3)))), "b5b59211500e8cf3f2416ac4ae82b9b8");
  EXPECT_EQ(to_hex(of(std::vector<std::byte>(65536))), "74fafbe9107f2b52266fc6e3ef133918");
  EXPECT_EQ(to_hex(of(std::vector<std::byte>(65536, std::byte{0xff}))), "d29190c9662e757bc16e88f919253d71");
  EXPECT_EQ(to_hex(of(pattern(4096))), "f3d61114cd8bae96187a9b8a4badd17e");
  EXPECT_EQ(to_hex(of(pattern(65536))), "47a8706495b4a0ec46c72b041a72a7e1");
  EXPECT_EQ(to_hex(of(pattern(65537))), "119776d99e32be7969902bb49d005f8e");
  EXPECT_EQ(to_hex(of(pattern(200000))), "aa139215ededfbe60dbfe369692cd751");
}

TEST_P(DigestOn, AgreesWithThePlainOneAtEveryLengthAndAlignment) {
  constexpr std::size_t kLengths[] = {0, 1, 3, 4, 7, 8, 15, 31, 32, 33, 63, 64, 65, 100, 4095, 4096, 4097, 8191, 20000};
  constexpr std::size_t kShifts[] = {0, 1, 2, 3, 4, 7, 8, 16, 31, 33, 63};
  const std::vector<std::byte> bytes = random_bytes(3 * kTileBytes + 64, 3);
  ThreadPool pool(1);
  for (std::size_t tiles = 0; tiles < 3; ++tiles) {
    for (const std::size_t tail : kLengths) {
      for (const std::size_t shift : kShifts) {
        const auto part = std::span(bytes).subspan(shift, tiles * kTileBytes + tail);
        ASSERT_EQ(of(part), digest(part, pool, plain_processor())) << part.size() << " bytes from " << shift;
      }
    }
  }
}

TEST_P(DigestOn, DoesNotDependOnThreads) {
  const std::vector<std::byte> bytes = random_bytes(75 * kTileBytes + 1234, 4);
  const Digest one = of(bytes, 1);
  for (const int threads : {2, 3, 4, 7}) EXPECT_EQ(of(bytes, threads), one) << threads << " threads";
}

// Only with the fastest processor; tests below compare the others with it. Under sanitizers every 37th byte.
TEST(DigestOfATile, ChangesWithEveryBit) {
  std::vector<std::byte> tile = random_bytes(kTileBytes, 5);
  const auto hash = [&] {
    TileTotal total;
    total.add(tile_sums(tile, best_processor()), 0);
    return Digest{.low = total.low, .high = total.high};
  };
  std::vector<Digest> seen = {hash()};
  seen.reserve(8 * kTileBytes + 1);
  for (std::size_t i = 0; i < tile.size(); i += kIsInstrumented ? 37 : 1) {
    std::byte& byte = tile[i];
    for (unsigned bit = 0; bit < 8; ++bit) {
      byte ^= std::byte{1} << bit;
      seen.push_back(hash());
      byte ^= std::byte{1} << bit;
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << "two of them are alike";
}

TEST_P(DigestOn, TwoFlipsOfTopBitsDoNotCancel) {
  std::vector<std::byte> tile = random_bytes(kTileBytes, 6);
  const Digest before = of(tile);
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    const std::size_t one = random() % (kTileBytes / 4) * 4 + 3;
    const std::size_t other = random() % (kTileBytes / 4) * 4 + 3;
    if (one == other) continue;
    tile[one] ^= std::byte{0x80};
    tile[other] ^= std::byte{0x80};
    ASSERT_NE(of(tile), before) << one << " and " << other;
    tile[one] ^= std::byte{0x80};
    tile[other] ^= std::byte{0x80};
  }
}

TEST_P(DigestOn, SwapsOfHalvesWordsPagesAndTilesChangeIt) {
  std::vector<std::byte> bytes = random_bytes(2 * kTileBytes, 8);
  const Digest before = of(bytes);
  std::mt19937_64 random(9);
  for (const std::size_t unit : {std::size_t{4}, std::size_t{8}, std::size_t{64}, kPageBytes, kTileBytes}) {
    const std::size_t units = bytes.size() / unit;
    for (int i = 0; i < 300; ++i) {
      // Neighbours first (the two halves of a word, two words), then the same place on another page, then any
      // two.
      const std::size_t one = random() % units;
      std::size_t other = i < 100 ? (one ^ 1) : random() % units;
      if (unit < kPageBytes && i >= 200) other = (one + kPageBytes / unit) % units;
      if (one == other) continue;
      const auto swap = [&] {
        std::swap_ranges(bytes.begin() + long(one * unit), bytes.begin() + long(one * unit + unit),
                         bytes.begin() + long(other * unit));
      };
      swap();
      ASSERT_NE(of(bytes), before) << "units of " << unit << " bytes: " << one << " and " << other;
      swap();
    }
  }
  ASSERT_EQ(of(bytes), before);
}

TEST_P(DigestOn, ZerosAtTheEndChangeIt) {
  std::vector<std::byte> bytes = random_bytes(1000, 10);
  bytes.resize(2 * kTileBytes + 10);
  std::set<Digest> seen;
  std::size_t lengths = 0;
  for (std::size_t length = 1000; length <= bytes.size(); length += length < 1100 ? 1 : 997) {
    seen.insert(of(std::span(bytes).first(length)));
    ++lengths;
  }
  EXPECT_EQ(seen.size(), lengths);
}

TEST_P(DigestOn, TilesOfZerosAreToldApartByNumber) {
  const std::vector<std::byte> zeros(64 * kTileBytes);
  std::set<Digest> seen;
  for (std::size_t tiles = 0; tiles <= 64; ++tiles) seen.insert(of(std::span(zeros).first(tiles * kTileBytes)));
  EXPECT_EQ(seen.size(), 65U);
}

INSTANTIATE_TEST_SUITE_P(On, DigestOn, testing::ValuesIn(processors()), name_of_case);

TEST(PieceDigest, IsTheDigestOfTheWholeInWhateverOrder) {
  ThreadPool one(1);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kTileBytes, 5 * kTileBytes + 77}) {
    const std::vector<std::byte> whole = random_bytes(bytes, 12);
    for (const std::size_t piece : {kTileBytes, 2 * kTileBytes, 8 * kTileBytes}) {
      PieceDigest pieces;
      const std::size_t count = (bytes + piece - 1) / piece;
      for (std::size_t i = count; i-- > 0;)  // the last one first
        pieces.add(i * piece, std::span(whole).subspan(i * piece, std::min(piece, bytes - i * piece)));
      EXPECT_EQ(pieces.finish(bytes), digest(whole, one)) << bytes << " bytes by " << piece;
    }
  }
}

TEST(ToHex, WritesTheHighHalfFirst) {
  EXPECT_EQ(to_hex({.low = 0x0123456789abcdef, .high = 0xf}), "000000000000000f0123456789abcdef");
}

}  // namespace
}  // namespace bascule::inline v0::kernels
