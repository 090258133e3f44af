#include <bascule/kernels/cuda_pack.h>

#include "kernels/adapters.h"
#include "kernels/layouts.h"
#include "kernels/random_layouts.h"
#include "on_device.h"
#include "support/devices/gpu.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

// The storages of `tensors` on the device, each with the same misalignment to 16 bytes as in the host's list.
struct TensorsOnDevice {
  std::vector<OnDevice> storages;
  std::vector<void*> addresses;

  explicit TensorsOnDevice(const Tensors& tensors, std::size_t shift = 0) {
    for (std::size_t i = 0; i < tensors.storages.size(); ++i) {
      storages.emplace_back(tensors.storages[i], shift);
      addresses.push_back(storages.back().data() + (tensors.addresses[i] - tensors.storages[i].data()));
    }
  }
};

// `arithmetic` and `expected` belong to the tensors of adapters.h.
void expect_packed(const Tensors& tensors, const std::vector<std::byte>& expected, std::size_t shift = 0,
                   std::span<const Arithmetic> arithmetic = {}) {
  SCOPED_TRACE(testing::Message() << "slot of " << tensors.slot_bytes << " bytes, sources " << shift << " bytes off");
  TensorsOnDevice device(tensors, shift);
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(tensors.segments, tensors.addresses.size(), tensors.slot_bytes, &plan, arithmetic));
  for (const bool want_digest : {true, false, true}) {
    const OnDevice slot(std::vector<std::byte>(tensors.slot_bytes, std::byte{0xa5}));
    const TotalsOnDevice totals(tensors.slot_bytes, /*all=*/true);
    ASSERT_CUDA(plan.pack(device.addresses, slot.data(), want_digest, nullptr, totals.output()));
    ASSERT_CUDA_CALL(cudaDeviceSynchronize());
    if (want_digest && plan.makes_totals()) {
      ASSERT_NO_FATAL_FAILURE(totals.expect_of(expected));
    }
    const std::vector<std::byte> found = slot.bytes();
    const auto at = std::ranges::mismatch(expected, found).in1 - expected.begin();
    ASSERT_EQ(static_cast<std::size_t>(at), expected.size()) << "the first byte that differs";
    if (want_digest) {
      ASSERT_EQ(to_hex(plan.digest()), to_hex(digest_of(expected)));
    }
  }
}

void expect_packed(const Tensors& tensors, std::size_t shift = 0) {
  expect_packed(tensors, naive_pack(tensors), shift);
}
void expect_packed(const Adapters& adapters, std::size_t shift = 0) {
  expect_packed(adapters.tensors, naive_pack(adapters), shift, adapters.arithmetic);
}

TEST(CudaPack, RandomLayoutsAreThoseOfTheNaivePack) {
  BASCULE_NEEDS_GPUS(1);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(expect_packed(random_tensors(seed, 5 + seed * 4, seed % 3 == 0 ? 200'000 : 20'000)));
  }
}

TEST(CudaPack, LargeRunsOfEveryPathAtEveryAlignment) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(99);
  for (const auto& [from, to] : kCasts) {
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    Tensors tensors;
    tensors.add_run(from, to, 200'000, random);
    tensors.add_run(from, to, 77'776, random);  // ends at a multiple of 16 bytes of slot, in the middle of a tile
    tensors.add_run(from, to, 100'001, random);
    tensors.add(from, to, {150, 700}, {1, 0}, 0, false, 1, random);
    tensors.add_run(DType::kU8, DType::kU8, 3, random);  // later elements lie across the borders of tiles
    tensors.add_run(from, to, 100'000, random);
    for (const std::size_t shift : {0, 8, 4, 2, 1}) ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, shift));
  }
}

// Matrices whose columns are contiguous, with rows and columns that fill squares of the kernel and that do not, several
// in one tensor, with gaps between columns, at every alignment; packed in one launch, and in launches that cut them.
TEST(CudaPack, TransposedMatricesOfEveryShape) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(31);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kBF16},
                                 {DType::kI32, DType::kI32},
                                 {DType::kF32, DType::kF32},
                                 {DType::kF32, DType::kBF16},
                                 {DType::kF32, DType::kF16}}) {
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    Tensors tensors;
    tensors.add_run(DType::kU8, DType::kU8, 48, random);  // off the pages
    tensors.add(from, to, {768, 2048}, {1, 0}, 0, false, 0, random);
    tensors.add(from, to, {1001, 1000}, {1, 0}, 0, false, 0, random);
    tensors.add(from, to, {16, 20'000}, {1, 0}, 8, false, 0, random);
    tensors.add(from, to, {40, 1032}, {1, 0}, 3, false, 2, random);
    tensors.add(from, to, {3'000, 128}, {1, 0}, 0, false, 0, random);
    tensors.add(from, to, {5, 70, 512}, {0, 2, 1}, 0, false, 0, random);
    tensors.add(from, to, {4, 333, 264}, {0, 2, 1}, 8, true, 0, random);
    tensors.add(from, to, {9, 100, 400}, {2, 0, 1}, 0, false, 0, random);  // no matrices
    tensors.add_run(DType::kU8, DType::kU8, 3, random);
    tensors.add(from, to, {200, 2048}, {1, 0}, 0, false, 0, random);  // off the chunks
    const std::vector<std::byte> expected = naive_pack(tensors);
    for (const std::size_t shift : {0, 4, 2, 1}) ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, expected, shift));
    const TensorsOnDevice device(tensors);
    PackPlan plan;
    ASSERT_CUDA(PackPlan::make(tensors.segments, tensors.addresses.size(), expected.size(), &plan));
    for (const std::uint64_t step : {1, 5, 16}) {
      const OnDevice packed(std::vector<std::byte>(expected.size()));
      const TotalsOnDevice totals(expected.size(), /*all=*/true);
      ASSERT_CUDA(plan.begin(device.addresses, packed.data(), true, nullptr, totals.output()));
      ASSERT_CUDA(plan.advance(3 * kTileBytes, nullptr));
      ASSERT_CUDA(plan.begin(device.addresses, packed.data(), true, nullptr, totals.output()));  // it was given up
      for (std::uint64_t end = 2 * kTileBytes; end < expected.size(); end += step * kTileBytes)
        ASSERT_CUDA(plan.advance(end, nullptr));
      ASSERT_CUDA(plan.advance(expected.size(), nullptr));
      ASSERT_CUDA_CALL(cudaDeviceSynchronize());
      ASSERT_TRUE(packed.bytes() == expected) << "in steps of " << step << " tiles";
      ASSERT_EQ(to_hex(plan.digest()), to_hex(digest_of(expected)));
      ASSERT_NO_FATAL_FAILURE(totals.expect_of(expected));
    }
  }
}

// Tiles of many runs, which warps take by pages.
TEST(CudaPack, TilesOfManyRunsAtEveryAlignment) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(37);
  Tensors tensors;
  for (int i = 0; i < 600; ++i)
    tensors.add_run(DType::kBF16, DType::kBF16, static_cast<std::int64_t>(8 * (1 + random() % (i % 3 == 0 ? 60 : 600))),
                    random);
  for (int i = 0; i < 300; ++i) tensors.add(DType::kF32, DType::kF32, {3, 160}, {0, 1}, 4, false, random() % 8, random);
  for (int i = 0; i < 8192; ++i)
    tensors.add_run(DType::kBF16, DType::kBF16, 8, random);  // more than a tile takes by pages
  for (const std::size_t shift : {0, 8, 4, 2, 1}) ASSERT_NO_FATAL_FAILURE(expect_packed(tensors, shift));
}

TEST(CudaPack, RandomAdaptersAreThoseOfTheFormula) {
  BASCULE_NEEDS_GPUS(1);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_NO_FATAL_FAILURE(expect_packed(random_adapters(seed, 12, seed % 3 == 0 ? 400 : 30), seed % 4 * 2));
  }
}

// Whole tiles, of each type, at every alignment of the factors.
TEST(CudaPack, LargeMergesAreThoseOfTheFormula) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(17);
  for (const auto& [from, to] : {std::pair{DType::kBF16, DType::kBF16},
                                 {DType::kF32, DType::kBF16},
                                 {DType::kF32, DType::kF32},
                                 {DType::kF16, DType::kF16},
                                 {DType::kBF16, DType::kF32}}) {
    for (const DType factor : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to) << ", factors of " << name_of(factor));
      Adapters adapters;
      adapters.merge({from, to, factor, factor}, 150, 1024, 16, 2, false, random);
      adapters.merge({from, to, factor, factor}, 100, 1000, 5, 0.5F, false, random);
      adapters.merge({from, to, factor, factor}, 100, 1002, 7, 1, false, random);  // no multiple of 16 bytes
      adapters.merge({from, to, factor, factor}, 70, 1024, 8, 1, true, random);
      for (const std::size_t shift : {0, 4, 2}) ASSERT_NO_FATAL_FAILURE(expect_packed(adapters, shift));
    }
  }
}

// Rows with fewer bytes than a page and with more, and stretches of 1 to 513 tiles whose blocks share the right factor;
// packed in one launch, and in launches that cut those stretches.
TEST(CudaPack, MergesOfRowsOfEveryLength) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(23);
  struct Shape {
    std::int64_t rows, columns;
    std::uint32_t rank;
  };
  for (const DType slot : {DType::kBF16, DType::kF32}) {
    for (const auto& [rows, columns, rank] : {Shape{30'000, 8, 4},
                                              {9'000, 24, 512},
                                              {2'000, 896, 8},
                                              {300, 3072, 16},
                                              {700, 2048, 300},
                                              {500, 4864, 1},
                                              {170, 11'008, 32},
                                              {90, 4104, 5},
                                              {6, 200'000, 3}}) {
      SCOPED_TRACE(testing::Message() << rows << " by " << columns << ", rank " << rank << ", to " << name_of(slot));
      Adapters adapters;
      adapters.merge({DType::kBF16, slot, DType::kF32, DType::kF32}, 3, 8, 1, 1, false, random);  // off the pages
      adapters.merge({DType::kBF16, slot, DType::kF32, DType::kF32}, rows, columns, rank, 0.5F, false, random);
      const std::vector<std::byte> expected = naive_pack(adapters);
      ASSERT_NO_FATAL_FAILURE(expect_packed(adapters.tensors, expected, 0, adapters.arithmetic));
      const TensorsOnDevice device(adapters.tensors);
      PackPlan plan;
      ASSERT_CUDA(PackPlan::make(adapters.tensors.segments, adapters.tensors.addresses.size(), expected.size(), &plan,
                                 adapters.arithmetic));
      for (const std::uint64_t step : {1, 5, 16}) {
        const OnDevice packed(std::vector<std::byte>(expected.size()));
        ASSERT_CUDA(plan.begin(device.addresses, packed.data(), true, nullptr));
        for (std::uint64_t end = 2 * kTileBytes; end < expected.size(); end += step * kTileBytes)
          ASSERT_CUDA(plan.advance(end, nullptr));
        ASSERT_CUDA(plan.advance(expected.size(), nullptr));
        ASSERT_CUDA_CALL(cudaDeviceSynchronize());
        ASSERT_TRUE(packed.bytes() == expected) << "in steps of " << step << " tiles";
        ASSERT_EQ(to_hex(plan.digest()), to_hex(digest_of(expected)));
      }
    }
  }
}

TEST(CudaPack, SlotsOfEverySmallSize) {
  BASCULE_NEEDS_GPUS(1);
  for (const std::int64_t bytes : {1, 2, 7, 15, 16, 17, 4095, 4096, 65535, 65536, 65537, 131072, 131073}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(bytes));
    Tensors tensors;
    tensors.add_run(DType::kU8, DType::kU8, bytes, random);
    ASSERT_NO_FATAL_FAILURE(expect_packed(tensors));
  }
}

TEST(CudaPack, NothingAtAll) {
  BASCULE_NEEDS_GPUS(1);
  ASSERT_NO_FATAL_FAILURE(expect_packed(Tensors()));
  std::mt19937_64 random(5);
  Tensors tensors;
  tensors.add(DType::kF32, DType::kBF16, {3, 0, 2}, {0, 1, 2}, 0, false, 0, random);
  ASSERT_NO_FATAL_FAILURE(expect_packed(tensors));
}

TEST(CudaPack, TenThousandSmallTensors) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(5);
  Tensors all;  // in two storages, since each OnDevice is an allocation
  for (int i = 0; i < 10'000; ++i) all.add_run(DType::kF32, DType::kBF16, 40 + i % 300, random);
  std::vector<std::byte> joined;
  Tensors tensors = all;
  std::vector<std::size_t> offsets;
  for (const auto& storage : all.storages) {
    offsets.push_back(joined.size());
    joined.insert(joined.end(), storage.begin(), storage.end());
  }
  const OnDevice device(joined);
  std::vector<void*> addresses;
  for (const std::size_t offset : offsets) addresses.push_back(device.data() + offset);
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(all.segments, addresses.size(), all.slot_bytes, &plan));
  const OnDevice slot(std::vector<std::byte>(all.slot_bytes));
  ASSERT_CUDA(plan.pack(addresses, slot.data(), true, nullptr));
  ASSERT_CUDA_CALL(cudaDeviceSynchronize());
  const std::vector<std::byte> expected = naive_pack(all);
  EXPECT_TRUE(slot.bytes() == expected);
  EXPECT_EQ(to_hex(plan.digest()), to_hex(digest_of(expected)));
}

// Every pattern of 16 bits, and the f32 patterns around each rounding: NaNs, infinities, denormals, ties.
TEST(CudaPack, CastsEveryPatternAsTheReference) {
  BASCULE_NEEDS_GPUS(1);
  for (const auto& [from, to] : kCasts) {
    SCOPED_TRACE(testing::Message() << name_of(from) << " to " << name_of(to));
    const std::size_t bytes = size_of(from);
    std::vector<std::byte> patterns;
    const auto add = [&](std::uint64_t bits) {
      const auto* first = reinterpret_cast<const std::byte*>(&bits);
      patterns.insert(patterns.end(), first, first + bytes);
    };
    for (std::uint64_t high = 0; high < 65536; ++high) {
      if (bytes == 2) add(high);
      if (bytes == 4)
        for (const std::uint64_t low : {0x0U, 0x1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
          add(high << 16 | low);
      if (bytes == 8)
        for (const std::uint64_t low :
             {0x0ULL, 0x1ULL, 0x800000000000ULL, 0x10000000ULL, 0x10000001ULL, 0x3ffffffffffULL, 0x40000000000ULL})
          add(high << 48 | low);
    }
    const std::size_t elements = patterns.size() / bytes / 4096 * 4096;
    Tensors tensors;
    tensors.storages.push_back(patterns);
    tensors.addresses.push_back(tensors.storages[0].data());
    tensors.slot_bytes = elements * size_of(to);
    tensors.segments.push_back({.tensor_dtype = from,
                                .slot_dtype = to,
                                .elements = elements,
                                .shape = {static_cast<std::int64_t>(elements)},
                                .tensor_strides = {1},
                                .slot_strides = {1}});
    ASSERT_NO_FATAL_FAILURE(expect_packed(tensors));
  }
}

TEST(CudaPack, InStepsItIsTheSameAndAnAbandonedOneLeavesNoTrace) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(3);
  Tensors tensors;
  for (int i = 0; i < 20; ++i) tensors.add_run(DType::kF32, DType::kBF16, 40'000 + 16 * i, random);
  const std::vector<std::byte> expected = naive_pack(tensors);
  TensorsOnDevice device(tensors);
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(tensors.segments, 20, tensors.slot_bytes, &plan));
  const OnDevice slot(std::vector<std::byte>(tensors.slot_bytes));
  ASSERT_CUDA(plan.begin(device.addresses, slot.data(), true, nullptr));
  ASSERT_CUDA(plan.advance(5 * kTileBytes, nullptr));
  // That pack is left unfinished; the next one finishes.
  ASSERT_CUDA(plan.begin(device.addresses, slot.data(), true, nullptr));
  for (std::uint64_t end = kTileBytes; end < tensors.slot_bytes; end += 3 * kTileBytes)
    ASSERT_CUDA(plan.advance(end, nullptr));
  EXPECT_FALSE(plan.advance(kTileBytes + 1, nullptr).ok());
  ASSERT_CUDA(plan.advance(tensors.slot_bytes, nullptr));
  ASSERT_CUDA_CALL(cudaDeviceSynchronize());
  EXPECT_TRUE(slot.bytes() == expected);
  EXPECT_EQ(to_hex(plan.digest()), to_hex(digest_of(expected)));
}

// Each call's kernels see that call's addresses, however many calls are under way.
TEST(CudaPack, FollowsTensorsThatMove) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(4);
  std::vector<Tensors> models(8);
  for (Tensors& model : models)
    for (int i = 0; i < 3; ++i) model.add_run(DType::kBF16, DType::kBF16, 100'000, random);
  std::vector<TensorsOnDevice> devices;
  std::vector<OnDevice> slots;
  for (const Tensors& model : models) {
    devices.emplace_back(model);
    slots.emplace_back(std::vector<std::byte>(model.slot_bytes));
  }
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(models[0].segments, 3, models[0].slot_bytes, &plan));
  for (std::size_t i = 0; i < models.size(); ++i)
    ASSERT_CUDA(plan.pack(devices[i].addresses, slots[i].data(), true, nullptr));
  ASSERT_CUDA_CALL(cudaDeviceSynchronize());
  for (std::size_t i = 0; i < models.size(); ++i) EXPECT_TRUE(slots[i].bytes() == naive_pack(models[i])) << i;
  EXPECT_EQ(to_hex(plan.digest()), to_hex(digest_of(naive_pack(models.back()))));
}

TEST(CudaPack, RefusesASlotOffSixteenBytesAndTheWrongNumberOfTensors) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(4);
  Tensors tensors;
  tensors.add_run(DType::kU8, DType::kU8, 100, random);
  TensorsOnDevice device(tensors);
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(tensors.segments, 1, 100, &plan));
  const OnDevice slot(std::vector<std::byte>(200));
  EXPECT_EQ(plan.pack(device.addresses, slot.data() + 8, true, nullptr).code, cudaErrorMisalignedAddress);
  EXPECT_EQ(plan.pack({}, slot.data(), true, nullptr).code, cudaErrorInvalidValue);
  EXPECT_EQ(PackPlan::make(tensors.segments, 1, 101, &plan).code, cudaErrorInvalidValue);
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
