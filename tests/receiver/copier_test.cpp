#include <bascule/receiver/copier.h>

#include <gmock/gmock.h>

#include <numeric>

#include "support/status.h"

namespace bascule {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

// Two tensors and a tied name, in the engine's own memory.
struct Engine {
  std::vector<std::byte> a = std::vector<std::byte>(12), b = std::vector<std::byte>(100);
  std::vector<TargetTensor> targets() {
    return {{.name = "b", .dtype = DType::kU8, .shape = {100}, .data = b.data()},
            {.name = "a", .dtype = DType::kF32, .shape = {3}, .data = a.data()},
            {.name = "tied", .dtype = DType::kU8, .shape = {100}, .data = b.data()}};
  }
};

Layout layout() {
  return Layout::arrange({{"a", DType::kF32, {3}}, {"b", DType::kU8, {100}}}, {{"tied", "b"}}).value();
}

std::vector<std::byte> filled(const Layout& layout) {
  std::vector<std::byte> slot(layout.bytes());
  for (std::size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::byte>(i + 1);
  return slot;
}

TEST(Copier, TakesTheSetThatTheEngineDoesNotRead) {
  Engine engine;
  const auto commit = Copier::make(engine.targets(), {}, Apply::kCommit, 1);
  const auto background = Copier::make(engine.targets(), {}, Apply::kBackground, 1);
  ASSERT_THAT(commit, IsOk());
  ASSERT_THAT(background, IsOk());
  EXPECT_EQ((*commit)->after(std::nullopt), 0);
  EXPECT_EQ((*commit)->after(0), 0) << "there is only one";
  EXPECT_EQ((*background)->after(std::nullopt), 1) << "the engine may use its own tensors until its first flip";
  EXPECT_EQ((*background)->after(1), 0);
  EXPECT_EQ((*background)->after(0), 1);
}

TEST(Copier, CopiesToEitherSetAndToNoOther) {
  Engine engine;
  const auto copier = Copier::make(engine.targets(), {}, Apply::kBackground, 1);
  ASSERT_THAT(copier, IsOk());
  const Layout from = layout();
  const std::vector<std::byte> slot = filled(from);
  const auto plan = (*copier)->plan(from);
  ASSERT_THAT(plan, IsOk());
  kernels::ThreadPool pool(2);
  const Publication publication{
      .version = 1, .slot = {1, 0}, .bytes = slot.size(), .digest = kernels::digest(slot, pool)};
  const SlotView view{.slot = publication.slot, .bytes = slot};
  for (const int set : {1, 0}) {
    ASSERT_THAT((*copier)->copy(*plan, from, publication, view, set, {.all = true}, pool, Deadline(absl::Seconds(20))),
                IsOk());
    const Weights& weights = *(*copier)->weights(set);
    EXPECT_TRUE(std::ranges::is_sorted(weights.tensors(), {}, &TensorView::name));
    for (const TensorView& tensor : weights.tensors()) {
      const Placement& placed = *from.find(tensor.name);
      EXPECT_TRUE(std::equal(tensor.data, tensor.data + placed.bytes, slot.begin() + long(placed.offset)))
          << tensor.name;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype), 0);
    }
    EXPECT_EQ(weights.find("tied")->data, weights.find("b")->data) << "one storage in each set";
    EXPECT_EQ(weights.find("b")->data == engine.b.data(), set == 0);
    const bool untouched = std::ranges::all_of(engine.b, [](std::byte byte) { return byte == std::byte{0}; });
    EXPECT_EQ(untouched, set == 1);
  }
}

TEST(Copier, SaysWhatWasSealedAndWhatItFound) {
  Engine engine;
  const auto copier = Copier::make(engine.targets(), {}, Apply::kCommit, 1);
  const Layout from = layout();
  std::vector<std::byte> slot = filled(from);
  kernels::ThreadPool pool(1);
  const Digest sealed = kernels::digest(slot, pool);
  slot[7] ^= std::byte{1};
  const Publication publication{.version = 4, .slot = {1, 1}, .bytes = slot.size(), .digest = sealed};
  const SlotView view{.slot = publication.slot, .bytes = slot};
  EXPECT_THAT((*copier)->copy(*(*copier)->plan(from), from, publication, view, 0, {.all = true}, pool,
                              Deadline(absl::Seconds(20))),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("slot 1 of version 4: digest " + to_hex(kernels::digest(slot, pool)) +
                                 ", sealed was " + to_hex(sealed))));
  EXPECT_THAT(
      (*copier)->copy(*(*copier)->plan(from), from, publication, view, 0, {}, pool, Deadline(absl::Seconds(20))),
      IsOk())
      << "nobody looked";
}

TEST(Copier, ExpectsWhatASenderCanCompare) {
  Engine engine;
  std::vector<TargetTensor> targets = engine.targets();
  const auto whole = Copier::make(targets, {}, Apply::kCommit, 1);
  EXPECT_THAT((*whole)->expected().value(),
              testing::ElementsAre(targets[0].spec(), targets[1].spec(), targets[2].spec()));
  const auto partial = Copier::make(targets, {.apply = Apply::kCommit, .partial = true}, Apply::kCommit, 1);
  EXPECT_EQ((*partial)->expected(), std::nullopt);
  targets[1].parts = {{"a", {{0, 0, 3}}}};
  const auto made_of_parts = Copier::make(targets, {}, Apply::kCommit, 1);
  EXPECT_EQ((*made_of_parts)->expected(), std::nullopt);
}

}  // namespace
}  // namespace bascule
