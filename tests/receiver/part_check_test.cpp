// A worker that copies only parts of the slots, as a tensor-parallel rank does, verifies the tiles that it copies
// whole or, with digest=always, all tiles that it copies from.
#include <bascule/receiver/part_check.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kRow = kernels::kTileBytes;  // a tile of U8

// w has five rows of a tile; the worker takes rows 1 to 3 and the first half of row 4. Then b, of which it takes
// nothing.
struct PartOfW {
  std::vector<std::byte> rows = std::vector<std::byte>(3 * kRow), half = std::vector<std::byte>(kRow / 2);

  std::vector<TargetTensor> targets() {
    return {{.name = "rows",
             .dtype = DType::kU8,
             .shape = {3, kRow},
             .data = rows.data(),
             .parts = {{"w", {{.dim = 0, .begin = 1, .end = 4}}}}},
            {.name = "half",
             .dtype = DType::kU8,
             .shape = {1, kRow / 2},
             .data = half.data(),
             .parts = {{"w", {{.dim = 0, .begin = 4, .end = 5}, {.dim = 1, .begin = 0, .end = kRow / 2}}}}}};
  }
};

const std::vector<TensorSpec> kSpecs = {{"w", DType::kU8, {5, kRow}}, {"b", DType::kU8, {100}}};

TEST(PlanTiles, AreThoseThatItCopiesWholeAndThoseThatItTouches) {
  PartOfW part;
  const Layout layout = Layout::arrange(kSpecs, {}).value();
  const auto plan = Plan::scatter(layout, part.targets(), /*partial=*/true);
  ASSERT_THAT(plan, IsOk());
  const auto tiles = PlanTiles::make(*plan, layout);
  ASSERT_NE(tiles, nullptr);
  constexpr std::uint64_t kTile = kernels::kTileBytes;
  EXPECT_THAT(tiles->whole.ranges, ElementsAre(ByteRange{kTile, 4 * kTile}));
  EXPECT_THAT(tiles->whole.is_checked, ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_EQ(tiles->whole.bytes, (BytesRead{.read = 3 * kTile + kTile / 2, .verified = 3 * kTile}));
  EXPECT_THAT(tiles->touched.ranges, ElementsAre(ByteRange{kTile, 5 * kTile}));
  EXPECT_THAT(tiles->touched.is_checked, ElementsAre(0, 1, 1, 1, 1, 0));
  EXPECT_EQ(tiles->touched.bytes, (BytesRead{.read = 4 * kTile, .verified = 4 * kTile}));
}

// What a tensor-parallel rank of Qwen3-8B reads in one pass, over its weights.
TEST(PlanTiles, OfARankOfQwen3AreFewMoreThanItsWeights) {
  constexpr std::int64_t kHidden = 4096, kMlp = 12288, kQ = 32 * 128, kKv = 8 * 128, kVocabulary = 151936, kHead = 128;
  constexpr int kLayers = 36, kRanks = 2;
  std::vector<TensorSpec> specs;
  std::vector<std::optional<int>> cut;  // the dimension in which each is cut
  const auto add = [&](std::string name, std::vector<std::int64_t> shape, std::optional<int> dim) {
    specs.push_back({std::move(name), DType::kBF16, std::move(shape)});
    cut.push_back(dim);
  };
  add("embed", {kVocabulary, kHidden}, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto name = [&](const char* of) { return cat("layers.", layer, ".", of); };
    for (const char* norm : {"input_norm", "post_norm"}) add(name(norm), {kHidden}, std::nullopt);
    for (const char* norm : {"q_norm", "k_norm"}) add(name(norm), {kHead}, std::nullopt);
    add(name("q"), {kQ, kHidden}, 0);
    for (const char* of : {"k", "v"}) add(name(of), {kKv, kHidden}, 0);
    add(name("o"), {kHidden, kQ}, 1);
    for (const char* of : {"gate", "up"}) add(name(of), {kMlp, kHidden}, 0);
    add(name("down"), {kHidden, kMlp}, 1);
  }
  add("norm", {kHidden}, std::nullopt);
  add("lm_head", {kVocabulary, kHidden}, 0);
  const Layout layout = Layout::arrange(specs, {}).value();
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<TargetTensor> targets;
    double own = 0;
    for (std::size_t t = 0; t < specs.size(); ++t) {
      TargetTensor target{.name = specs[t].name, .dtype = DType::kBF16, .shape = specs[t].shape};
      if (cut[t]) {
        std::int64_t& size = target.shape[static_cast<std::size_t>(*cut[t])];
        size /= kRanks;
        target.parts = {{specs[t].name, {{.dim = *cut[t], .begin = rank * size, .end = (rank + 1) * size}}}};
      }
      own += static_cast<double>(byte_count(target.dtype, target.shape));
      targets.push_back(std::move(target));
    }
    const auto plan = Plan::scatter(layout, targets, /*partial=*/false);
    ASSERT_THAT(plan, IsOk());
    const auto tiles = PlanTiles::make(*plan, layout);
    ASSERT_NE(tiles, nullptr);
    const auto over_own = [&](std::uint64_t bytes) { return static_cast<double>(bytes) / own; };
    EXPECT_LE(over_own(tiles->whole.bytes.read), 1.01) << "digest=on";
    EXPECT_LE(over_own(tiles->touched.bytes.read), 1.31) << "digest=always";
    EXPECT_NEAR(over_own(tiles->whole.bytes.verified), 0.7, 0.01) << "the verified share with digest=on";
    RecordProperty(cat("rank", rank),
                   cat("on ", over_own(tiles->whole.bytes.read), " always ", over_own(tiles->touched.bytes.read),
                       " verified with on ", over_own(tiles->whole.bytes.verified)));
  }
}

class PartsOver : public testing::TestWithParam<std::tuple<const char*, Apply>> {
 protected:
  void SetUp() override {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint(), .threads = 2, .expect_workers = {0}});
    ASSERT_THAT(sender, IsOk());
    sender_.emplace(*std::move(sender));
    ASSERT_THAT(sender_->register_model(host_tensors({{kSpecs[0], w_.data()}, {kSpecs[1], b_.data()}})), IsOk());
  }
  std::string endpoint() const { return cat(std::get<0>(GetParam()), "://", (folder_.path() / "endpoint").string()); }
  // Publishes bytes of `value` through a loan, and returns where w then lies in the slot. No worker has joined.
  std::byte* publish(std::byte value) {
    absl::StatusOr<WritableSlot> loan = sender_->loan();
    EXPECT_THAT(loan, IsOk());
    std::byte* w = nullptr;
    for (const MutableTensorView& tensor : loan->tensors()) {
      std::fill_n(tensor.data, byte_count(tensor.dtype, tensor.shape), value);
      if (tensor.name == "w") w = tensor.data;
    }
    EXPECT_THAT(sender_->publish(*std::move(loan)), IsOk());
    return w;
  }
  Receiver join(PartOfW& part) const { return join(part.targets(), ""); }
  Receiver join(std::vector<TargetTensor> targets, std::string_view options) const {
    absl::StatusOr<Receiver> receiver =
        Receiver::connect({.endpoint = endpoint() + std::string(options), .worker = "w"});
    EXPECT_THAT(receiver, IsOk());
    const ModelOptions copies{.apply = std::get<1>(GetParam()), .partial = true};
    if (!targets.empty()) {
      EXPECT_THAT(receiver->register_model(std::move(targets), copies), IsOk());
    }
    receiver->join();
    return *std::move(receiver);
  }
  static bool flips(Receiver& receiver) {
    for (const Deadline deadline(patience()); !deadline.passed();
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (receiver.commit().changed) return true;
    return false;
  }
  static std::string error_of(Receiver& receiver) {
    for (const Deadline deadline(patience()); !deadline.passed() && receiver.status().error.ok();
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      static_cast<void>(receiver.commit());
    return receiver.status().error.ToString();
  }

  // Sends to `receiver`, the only worker, and expects it to report `bytes`.
  void send_verified(Receiver& receiver, const BytesRead& bytes) {
    if (sender_->version() > 0) {  // it joins late, and catches up first
      ASSERT_TRUE(flips(receiver));
    }
    ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
    for (int version = 1; version <= 3; ++version) {
      for (std::size_t i = 0; i < w_.size(); ++i)
        w_[i] = static_cast<std::byte>(i / 77 + static_cast<std::size_t>(version));
      ASSERT_THAT(sender_->send_async(), IsOk());
      ASSERT_TRUE(flips(receiver));
      const auto report = sender_->wait_async();
      ASSERT_THAT(report, IsOk());
      const auto of_worker = std::ranges::find(report->workers, WorkerState::kServing, &WorkerReport::state);
      ASSERT_NE(of_worker, report->workers.end());
      EXPECT_EQ(of_worker->bytes, bytes);
      EXPECT_DOUBLE_EQ(of_worker->verified_share().value(),
                       static_cast<double>(bytes.verified) / static_cast<double>(bytes.read));
    }
  }

  const TempFolder folder_;
  std::vector<std::byte> w_ = std::vector<std::byte>(5 * kRow), b_ = std::vector<std::byte>(100);
  std::optional<Sender> sender_;
};

INSTANTIATE_TEST_SUITE_P(Hosts, PartsOver,
                         testing::Combine(testing::Values("shm", "memmap"),
                                          testing::Values(Apply::kCommit, Apply::kBackground)),
                         [](const testing::TestParamInfo<std::tuple<const char*, Apply>>& info) {
                           return cat(std::get<0>(info.param),
                                      std::get<1>(info.param) == Apply::kCommit ? "Commit" : "Background");
                         });

TEST_P(PartsOver, AWrongByteInATileThatIsCopiedWholeIsNamed) {
  std::byte* const w = publish(std::byte{1});
  w[2 * kRow + 5] ^= std::byte{4};  // as no healthy trainer does
  PartOfW part;
  Receiver receiver = join(part);
  EXPECT_THAT(error_of(receiver), AllOf(HasSubstr("slot 0 of version 1: bytes [131072, 196608), where tensor w lies"),
                                        HasSubstr("65536 of the bytes that this worker verifies")));
  EXPECT_EQ(receiver.status().version, 0U);
  w[2 * kRow + 5] ^= std::byte{4};
  ASSERT_TRUE(flips(receiver)) << "once the byte is right";
  EXPECT_TRUE(std::ranges::all_of(part.rows, [](std::byte byte) { return byte == std::byte{1}; }) ||
              std::get<1>(GetParam()) == Apply::kBackground);
}

// Also to a worker that takes everything: by copies, or in place with digest=always.
TEST_P(PartsOver, AWrongByteOfAWholeVersionIsNamed) {
  std::byte* const w = publish(std::byte{1});
  w[2 * kRow + 5] ^= std::byte{4};
  w[4 * kRow] ^= std::byte{4};
  std::vector<std::byte> whole(5 * kRow), b(100);
  const std::vector<TargetTensor> targets = {
      {.name = "w", .dtype = DType::kU8, .shape = kSpecs[0].shape, .data = whole.data()},
      {.name = "b", .dtype = DType::kU8, .shape = kSpecs[1].shape, .data = b.data()}};
  for (const bool in_place : {false, true}) {
    Receiver receiver = in_place ? join({}, "?digest=always") : join(targets, "");
    EXPECT_THAT(error_of(receiver),
                AllOf(HasSubstr("changed after they were sealed"),
                      HasSubstr("wrong are bytes [131072, 196608), where tensor w lies, and 65536")));
  }
}

TEST_P(PartsOver, TilesThatAreNotCopiedWholeAreNotChecked) {
  std::byte* const w = publish(std::byte{1});
  w[5] ^= std::byte{4};             // in row 0, which the worker does not read
  w[5 * kRow - 1] ^= std::byte{4};  // in the half of row 4 that it does not read
  PartOfW part;
  Receiver receiver = join(part);
  EXPECT_TRUE(flips(receiver));
}

TEST_P(PartsOver, AlwaysChecksAllBytesOfTheTilesThatAreCopiedFrom) {
  std::byte* const w = publish(std::byte{1});
  w[5] ^= std::byte{4};             // in row 0, of which the worker reads nothing
  w[5 * kRow - 1] ^= std::byte{4};  // in the half of row 4 that it does not copy
  PartOfW part;
  Receiver receiver = join(part.targets(), "?digest=always");
  EXPECT_THAT(error_of(receiver), AllOf(HasSubstr("slot 0 of version 1: bytes [262144, 327680), where tensor w lies"),
                                        HasSubstr("65536 of the bytes that this worker verifies")));
  w[5 * kRow - 1] ^= std::byte{4};
  EXPECT_TRUE(flips(receiver)) << "row 0 is not its own";
}

// A send packs and digests in one pass, which fills the table.
TEST_P(PartsOver, SendsAreVerifiedAndTheReportSaysHowMuch) {
  for (const bool always : {false, true}) {
    SCOPED_TRACE(always);
    PartOfW part;
    Receiver receiver = join(part.targets(), always ? "?digest=always" : "");
    const std::uint64_t row = kRow;
    send_verified(receiver, always ? BytesRead{.read = 4 * row, .verified = 4 * row}
                                   : BytesRead{.read = 3 * row + row / 2, .verified = 3 * row});
  }
}

TEST_P(PartsOver, WithoutADigestNothingIsVerified) {
  PartOfW part;
  Receiver receiver = join(part.targets(), "?digest=off");
  send_verified(receiver, {.read = 3 * kRow + kRow / 2, .verified = 0});
}

TEST_P(PartsOver, EnginesThatReadInPlaceVerifyAllOrNothing) {
  for (const bool always : {false, true}) {
    SCOPED_TRACE(always);
    Receiver receiver = join({}, always ? "?digest=always" : "");
    const std::uint64_t bytes = Layout::arrange(kSpecs, {})->bytes();
    send_verified(receiver, {.read = bytes, .verified = always ? bytes : 0});
  }
}

}  // namespace
}  // namespace bascule::test
