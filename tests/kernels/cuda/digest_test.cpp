#include <bascule/kernels/digest.h>

#include <random>

#include "on_device.h"
#include "support/devices/gpu.h"
#include <bascule/kernels/cuda_digest.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

TEST(CudaDigest, IsThatOfTheHostForEveryLength) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(17);
  std::vector<std::byte> bytes(9'000'003);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const OnDevice device(bytes);
  DigestCell cell;
  ASSERT_CUDA(DigestCell::make(&cell));
  ThreadPool pool(2);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{15}, std::size_t{16},
        std::size_t{17}, std::size_t{4095}, std::size_t{4097}, std::size_t{65535}, std::size_t{65536},
        std::size_t{65537}, std::size_t{200'000}, bytes.size()}) {
    ASSERT_CUDA(digest(device.data(), length, cell, nullptr));
    ASSERT_CUDA_CALL(cudaDeviceSynchronize());
    EXPECT_EQ(to_hex(cell.digest()), to_hex(kernels::digest(std::span(bytes).first(length), pool, plain_processor())))
        << length << " bytes";
  }
}

// With and without the digest of all; more tiles than a block takes in turn.
TEST(CudaDigest, TotalsOfTilesAreThoseOfTheHost) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(19);
  for (const std::size_t length : {std::size_t{1}, std::size_t{65'536}, std::size_t{9'000'003}}) {
    SCOPED_TRACE(length);
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const OnDevice device(bytes);
    DigestCell cell;
    ASSERT_CUDA(DigestCell::make(&cell));
    const TotalsOnDevice all(length, true), some(length, false);
    ASSERT_CUDA(digest(device.data(), length, cell, nullptr, all.output()));
    ASSERT_CUDA(total_tiles(device.data(), length, some.output(), nullptr));
    ASSERT_CUDA_CALL(cudaDeviceSynchronize());
    all.expect_of(bytes);
    some.expect_of(bytes);
    EXPECT_EQ(to_hex(cell.digest()), to_hex(digest_of(bytes)));
  }
}

TEST(CudaDigest, RefusesMoreTilesThanItsTotalsCount) {
  BASCULE_NEEDS_GPUS(1);
  DigestCell cell;
  ASSERT_CUDA(DigestCell::make(&cell));
  DigestOutput target;
  ASSERT_CUDA(cell.target(DigestTotals::kMostTiles * kTileBytes, nullptr, &target));
  EXPECT_EQ(cell.target(DigestTotals::kMostTiles * kTileBytes + 1, nullptr, &target).code, cudaErrorInvalidValue);
}

// The vectors of docs/design/digest.md.
TEST(CudaDigest, KnownVectors) {
  BASCULE_NEEDS_GPUS(1);
  std::vector<std::byte> pattern(200'000);
  for (std::size_t i = 0; i < pattern.size(); ++i)
    pattern[i] = static_cast<std::byte>(i * 167 + i / 256 * 13 + i / 65'536 * 5);
  const OnDevice device(pattern);
  DigestCell cell;
  ASSERT_CUDA(DigestCell::make(&cell));
  for (const auto& [length, expected] : {std::pair<std::size_t, const char*>{4096, "f3d61114cd8bae96187a9b8a4badd17e"},
                                         {65'536, "47a8706495b4a0ec46c72b041a72a7e1"},
                                         {65'537, "119776d99e32be7969902bb49d005f8e"},
                                         {200'000, "aa139215ededfbe60dbfe369692cd751"}}) {
    ASSERT_CUDA(digest(device.data(), length, cell, nullptr));
    ASSERT_CUDA_CALL(cudaDeviceSynchronize());
    EXPECT_EQ(to_hex(cell.digest()), expected);
  }
}

TEST(CudaDigest, EveryBitOfATileCounts) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(18);
  std::vector<std::byte> bytes(kTileBytes + 100);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const OnDevice device(bytes);
  DigestCell cell;
  ASSERT_CUDA(DigestCell::make(&cell));
  const auto now = [&] {
    EXPECT_TRUE(digest(device.data(), bytes.size(), cell, nullptr).ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return cell.digest();
  };
  const Digest before = now();
  for (int i = 0; i < 500; ++i) {
    const std::size_t at = random() % bytes.size();
    const auto flipped = bytes[at] ^ static_cast<std::byte>(1U << random() % 8);
    ASSERT_EQ(cudaMemcpy(device.data() + at, &flipped, 1, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_NE(to_hex(now()), to_hex(before)) << "byte " << at;
    ASSERT_EQ(cudaMemcpy(device.data() + at, &bytes[at], 1, cudaMemcpyHostToDevice), cudaSuccess);
  }
  EXPECT_EQ(to_hex(now()), to_hex(before));
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
