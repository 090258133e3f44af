#include <bascule/kernels/cuda_unpack.h>

#include "kernels/boxes.h"
#include "kernels/random_layouts.h"
#include "on_device.h"
#include "support/devices/gpu.h"
#include <bascule/kernels/cuda_pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

void expect_unpacked(Boxes& boxes, std::size_t shift = 0, std::uint32_t regions = 1) {
  SCOPED_TRACE(testing::Message() << "slot of " << boxes.slot.size() << " bytes, targets " << shift << " bytes off");
  boxes.forget();
  const std::vector<std::vector<std::byte>> expected = naive_unpack(boxes);
  UnpackPlan plan;
  ASSERT_CUDA(UnpackPlan::make(boxes.segments, boxes.storages.size(), boxes.slot.size(), &plan, regions));
  const OnDevice slot(boxes.slot);
  for (const bool want_digest : {true, false, true}) {
    std::vector<OnDevice> storages;
    std::vector<void*> addresses;
    for (std::size_t i = 0; i < boxes.storages.size(); ++i) {
      storages.emplace_back(boxes.storages[i], shift);
      addresses.push_back(storages.back().data() + boxes.shifts[i]);
    }
    const TotalsOnDevice totals(boxes.slot.size(), /*all=*/want_digest);
    ASSERT_CUDA(plan.unpack(slot.data(), addresses, want_digest, nullptr, totals.output()));
    ASSERT_CUDA_CALL(cudaDeviceSynchronize());
    ASSERT_NO_FATAL_FAILURE(totals.expect_of(boxes.slot));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::vector<std::byte> found = storages[i].bytes();
      const auto at = std::ranges::mismatch(expected[i], found).in1 - expected[i].begin();
      ASSERT_EQ(static_cast<std::size_t>(at), expected[i].size()) << "the first byte that differs, of tensor " << i;
    }
    if (want_digest) {
      ASSERT_EQ(to_hex(plan.digest()), to_hex(digest_of(boxes.slot)));
    }
  }
  EXPECT_TRUE(slot.bytes() == boxes.slot);
}

TEST(CudaUnpack, RandomBoxesAreThoseOfTheNaiveUnpack) {
  BASCULE_NEEDS_GPUS(1);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Boxes boxes = random_boxes(seed, 5 + seed * 4, seed % 3 == 0 ? 200'000 : 20'000);
    ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes));
    ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, 0, static_cast<std::uint32_t>(2 + seed)));
  }
}

TEST(CudaUnpack, LargeRunsOfEveryPathAtEveryAlignment) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(99);
  for (const auto& [from, to] : kCasts) {
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    Boxes boxes;
    const auto whole = [&](std::int64_t elements, std::size_t shift) {
      boxes.read(boxes.append(from, {elements}, random), {0}, {elements}, to, {0}, 0, shift);
    };
    whole(200'000, 0);
    whole(77'776, 0);
    whole(100'001, 0);
    const Boxes::InSlot matrix = boxes.append(from, {150, 700}, random);
    boxes.read(matrix, {0, 0}, {150, 700}, to, {0, 1}, 0, 0);
    boxes.read(matrix, {0, 350}, {150, 350}, to, {0, 1}, 0, 0);
    boxes.read(matrix, {75, 0}, {75, 700}, to, {1, 0}, 0, 0);
    boxes.skip(3, random);
    whole(100'000, 0);
    boxes.sort();
    for (const std::size_t shift : {0, 8, 4, 2, 1}) ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes, shift));
  }
}

TEST(CudaUnpack, NothingAtAll) {
  BASCULE_NEEDS_GPUS(1);
  Boxes boxes;
  ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes));
  std::mt19937_64 random(5);
  boxes.read(boxes.append(DType::kF32, {3, 0, 2}, random), {0, 0, 0}, {3, 0, 2}, DType::kBF16, {0, 1, 2}, 0, 0);
  boxes.skip(200'000, random);
  ASSERT_NO_FATAL_FAILURE(expect_unpacked(boxes));
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
