// Memory that changes while it is packed or unpacked: the digested bytes must be the bytes that are passed on. These
// tests' processor changes the memory at the critical moment, between a page's digest and its other use.
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "layouts.h"
#include "processors.h"
#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>
#include <bascule/kernels/unpack.h>

namespace bascule::inline v0::kernels {
namespace {

const Processor* real = nullptr;
std::span<std::byte> changing;  // by every digest of a page

// Flips the signs of some BF16, so that no cast rounds differently.
void change() {
  for (std::size_t i = 1; i < changing.size(); i += 500) changing[i] ^= std::byte{0x80};
}
PageSums sums_then_change(const std::byte* page) {
  const PageSums sums = real->page_sums(page);
  change();
  return sums;
}
PageSums change_then_sums(const std::byte* page) {
  change();
  return real->page_sums(page);
}

class LoadOnceOn : public testing::TestWithParam<NamedProcessor> {
 protected:
  void SetUp() override { real = GetParam().processor; }
  void TearDown() override { changing = {}; }
  // One thread, so that the change is not a data race.
  ThreadPool one_{1};
};

// Tensors and a slot that holds them as BF16, without NaNs.
struct Model {
  Tensors tensors;
  std::vector<std::byte> memory;
  std::span<std::byte> slot;  // on a cache line, as slots are

  void add(DType dtype, DType in_slot, const std::vector<std::int64_t>& shape, const std::vector<std::size_t>& order,
           std::mt19937_64& random) {
    tensors.add(dtype, in_slot, shape, order, 0, false, 0, random);
    for (std::byte& byte : tensors.storages.back()) byte &= std::byte{0xbf};  // no NaN's exponent
  }
  Digest pack_with(ThreadPool& pool, const Processor& processor) {
    constexpr std::size_t kLine = 64;
    memory.resize(tensors.slot_bytes + kLine);
    slot = std::span(memory).subspan((kLine - reinterpret_cast<std::uintptr_t>(memory.data()) % kLine) % kLine,
                                     tensors.slot_bytes);
    return *pack(tensors.segments, tensors.addresses, slot, true, pool, nullptr, processor);
  }
};

std::vector<Model> models() {
  std::mt19937_64 random(1);
  std::vector<Model> all;
  for (const std::int64_t rows : {3, 100, 6000}) {  // in a part of a tile; in the caches; past the caches
    Model runs, casts, transposed, small_ones;
    runs.add(DType::kBF16, DType::kBF16, {rows, 500}, {0, 1}, random);
    casts.add(DType::kF32, DType::kBF16, {rows, 500}, {0, 1}, random);
    transposed.add(DType::kBF16, DType::kBF16, {rows, 500}, {1, 0}, random);
    transposed.add(DType::kF32, DType::kBF16, {rows, 500}, {1, 0}, random);
    for (std::int64_t i = 0; i < rows; ++i)
      small_ones.add(i % 2 == 0 ? DType::kF32 : DType::kBF16, DType::kBF16, {3 + i % 7, 100}, {0, 1}, random);
    for (Model* model : {&runs, &casts, &transposed, &small_ones}) all.push_back(std::move(*model));
  }
  return all;
}

TEST_P(LoadOnceOn, UnpackDigestsWhatItWrites) {
  const Processor processor = {.run_cast = real->run_cast,
                               .page_sums = sums_then_change,
                               .tile_writer = real->tile_writer,
                               .scaled_writer = real->scaled_writer,
                               .make_panel = real->make_panel,
                               .multiply_add = real->multiply_add,
                               .flush = real->flush};
  for (Model& model : models()) {
    model.pack_with(one_, *real);
    std::vector<std::vector<std::byte>> copies;
    std::vector<std::byte*> targets;
    for (std::size_t i = 0; i < model.tensors.storages.size(); ++i) {
      copies.emplace_back(model.tensors.storages[i].size());
      targets.push_back(copies[i].data() + (model.tensors.addresses[i] - model.tensors.storages[i].data()));
    }
    changing = model.slot;
    const auto digested = unpack(model.tensors.segments, targets, model.slot, true, one_, processor);
    changing = {};
    const std::vector<const std::byte*> sources(targets.begin(), targets.end());
    std::vector<std::byte> written(model.slot.size());
    EXPECT_EQ(pack(model.tensors.segments, sources, written, true, one_, nullptr, *real), digested)
        << "slot of " << model.slot.size() << " bytes, " << model.tensors.segments.size() << " tensors";
  }
}

TEST_P(LoadOnceOn, PackDigestsWhatItRead) {
  const Processor processor = {.run_cast = real->run_cast,
                               .page_sums = change_then_sums,
                               .tile_writer = real->tile_writer,
                               .scaled_writer = real->scaled_writer,
                               .make_panel = real->make_panel,
                               .multiply_add = real->multiply_add,
                               .flush = real->flush};
  for (Model& model : models()) {
    const Digest expected = model.pack_with(one_, *real);
    changing = model.slot;
    EXPECT_EQ(model.pack_with(one_, processor), expected)
        << "slot of " << model.slot.size() << " bytes, " << model.tensors.segments.size() << " tensors";
    changing = {};
  }
}

INSTANTIATE_TEST_SUITE_P(On, LoadOnceOn, testing::ValuesIn(processors()), name_of_case);

}  // namespace
}  // namespace bascule::inline v0::kernels
