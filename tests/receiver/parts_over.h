// Tests of a worker that copies only parts of the slots, as a tensor-parallel rank does: it verifies the tiles that it
// copies whole or, with digest=always, all tiles that it copies from. Two programs include them: with slots in host
// memory (part_check_test.cpp), and with slots on a device (device_parts_test.cpp).
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/part_check.h>
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {

using testing::AllOf;
using testing::HasSubstr;

inline constexpr std::int64_t kRow = kernels::kTileBytes;  // a tile of U8

// w has five rows of a tile; the worker takes rows 1 to 3 and the first half of row 4. Then b, of which it takes
// nothing.
struct PartOfW {
  std::vector<std::byte> rows = std::vector<std::byte>(3 * kRow), half = std::vector<std::byte>(kRow / 2);

  std::vector<TargetTensor> targets(int device = kHost) {
    return {{.name = "rows",
             .dtype = DType::kU8,
             .shape = {3, kRow},
             .data = rows.data(),
             .parts = {{"w", {{.dim = 0, .begin = 1, .end = 4}}}},
             .device = device},
            {.name = "half",
             .dtype = DType::kU8,
             .shape = {1, kRow / 2},
             .data = half.data(),
             .parts = {{"w", {{.dim = 0, .begin = 4, .end = 5}, {.dim = 1, .begin = 0, .end = kRow / 2}}}},
             .device = device}};
  }
};

inline const std::vector<TensorSpec> kSpecs = {{"w", DType::kU8, {5, kRow}}, {"b", DType::kU8, {100}}};

// Where the worker reads: a scheme's slots in host memory, or as if they were on a device.
struct ReadOver {
  std::string name;
  std::string scheme;
  Apply apply = Apply::kCommit;
  int device = kHost;
  std::function<Scheme(Scheme)> as{};  // null: as it is

  friend void PrintTo(const ReadOver& read, std::ostream* out) { *out << read.name; }
};

class PartsOver : public testing::TestWithParam<ReadOver> {
 protected:
  void SetUp() override {
    const absl::StatusOr<const Scheme*> known = find_scheme(GetParam().scheme);
    ASSERT_THAT(known, IsOk());
    if (GetParam().as) scheme_ = GetParam().as(**known);
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint(), .threads = 2, .expect_workers = {0}});
    ASSERT_THAT(sender, IsOk());
    sender_.emplace(*std::move(sender));
    ASSERT_THAT(sender_->register_model(host_tensors({{kSpecs[0], w_.data()}, {kSpecs[1], b_.data()}})), IsOk());
  }
  std::string endpoint() const { return cat(GetParam().scheme, "://", (folder_.path() / "endpoint").string()); }
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
  Receiver join(PartOfW& part) const { return join(part.targets(GetParam().device), ""); }
  Receiver join(std::vector<TargetTensor> targets, std::string_view options) const {
    absl::StatusOr<Receiver> receiver = Receiver::connect(
        {.endpoint = endpoint() + std::string(options), .worker = "w", .scheme = scheme_ ? &*scheme_ : nullptr});
    EXPECT_THAT(receiver, IsOk());
    const ModelOptions copies{.apply = GetParam().apply, .partial = true};
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
  std::optional<Scheme> scheme_;  // the worker's, unless it is the registry's
  std::vector<std::byte> w_ = std::vector<std::byte>(5 * kRow), b_ = std::vector<std::byte>(100);
  std::optional<Sender> sender_;
};

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
              GetParam().apply == Apply::kBackground);
}

// Also to a worker that takes everything: by copies, or in place with digest=always.
TEST_P(PartsOver, AWrongByteOfAWholeVersionIsNamed) {
  std::byte* const w = publish(std::byte{1});
  w[2 * kRow + 5] ^= std::byte{4};
  w[4 * kRow] ^= std::byte{4};
  std::vector<std::byte> whole(5 * kRow), b(100);
  const std::vector<TargetTensor> targets = {
      {.name = "w", .dtype = DType::kU8, .shape = kSpecs[0].shape, .data = whole.data(), .device = GetParam().device},
      {.name = "b", .dtype = DType::kU8, .shape = kSpecs[1].shape, .data = b.data(), .device = GetParam().device}};
  for (const bool in_place : {false, true}) {
    Receiver receiver = in_place ? join({}, "?digest=always") : join(targets, "");
    EXPECT_THAT(error_of(receiver),
                AllOf(HasSubstr("changed after they were sealed"),
                      HasSubstr("wrong are bytes [131072, 196608), where tensor w lies, and 65536 bytes after them")));
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
  Receiver receiver = join(part.targets(GetParam().device), "?digest=always");
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
    Receiver receiver = join(part.targets(GetParam().device), always ? "?digest=always" : "");
    const std::uint64_t row = kRow;
    send_verified(receiver, always ? BytesRead{.read = 4 * row, .verified = 4 * row}
                                   : BytesRead{.read = 3 * row + row / 2, .verified = 3 * row});
  }
}

TEST_P(PartsOver, WithoutADigestNothingIsVerified) {
  PartOfW part;
  Receiver receiver = join(part.targets(GetParam().device), "?digest=off");
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

}  // namespace bascule::test
