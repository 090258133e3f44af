// A worker on a GPU that copies parts of slots on the same GPU checks the tiles that it copies whole, or with
// digest=always all tiles that it copies from, against the table that the trainer's GPU made.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "support/devices/device_bytes.h"
#include "support/devices/gpu.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/kernels/tiles.h>
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using test::IsOk;
using test::patience;
using testing::HasSubstr;

constexpr std::int64_t kRow = kernels::kTileBytes;  // a tile of U8
constexpr std::size_t kRows = 5;

class DeviceParts : public testing::TestWithParam<Apply> {
 protected:
  void SetUp() override {
    BASCULE_NEEDS_GPUS(1);
    rows_ = test::device_bytes(0, 3 * kRow);
    half_ = test::device_bytes(0, kRow / 2);
    absl::StatusOr<Sender> made = Sender::listen({.endpoint = endpoint_, .expect_workers = {0}});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(test::placed(host_tensors({{spec_, bytes_.data()}}), 0)), IsOk());
  }
  // Rows 1 to 3, and the first half of row 4.
  Receiver join(std::string_view options) {
    absl::StatusOr<Receiver> receiver =
        Receiver::connect({.endpoint = endpoint_ + std::string(options), .worker = "w"});
    EXPECT_THAT(receiver, IsOk());
    const std::vector<TargetTensor> targets = {
        {.name = "rows",
         .dtype = DType::kU8,
         .shape = {3, kRow},
         .data = rows_.get(),
         .parts = {{"w", {{.dim = 0, .begin = 1, .end = 4}}}},
         .device = 0},
        {.name = "half",
         .dtype = DType::kU8,
         .shape = {1, kRow / 2},
         .data = half_.get(),
         .parts = {{"w", {{.dim = 0, .begin = 4, .end = 5}, {.dim = 1, .begin = 0, .end = kRow / 2}}}},
         .device = 0}};
    EXPECT_THAT(receiver->register_model(targets, {.apply = GetParam(), .partial = true}), IsOk());
    receiver->join();
    return *std::move(receiver);
  }
  void fill(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  static bool flips(Receiver& receiver) {
    for (const Deadline deadline(patience()); !deadline.passed();
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (receiver.commit().changed) return true;
    return false;
  }

  const test::TempFolder folder_;
  const std::string endpoint_ = cat("cuda-ipc://", (folder_.path() / "endpoint").string());
  const TensorSpec spec_ = {"w", DType::kU8, {kRows, kRow}};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kRows * kRow);
  std::shared_ptr<std::byte> rows_, half_;
  std::optional<Sender> sender_;
};

INSTANTIATE_TEST_SUITE_P(Gpus, DeviceParts, testing::Values(Apply::kCommit, Apply::kBackground),
                         [](const testing::TestParamInfo<Apply>& info) {
                           return info.param == Apply::kCommit ? "Commit" : "Background";
                         });

TEST_P(DeviceParts, AreVerifiedAndTheReportSaysHowMuch) {
  for (const bool always : {false, true}) {
    SCOPED_TRACE(always);
    Receiver receiver = join(always ? "?digest=always" : "");
    if (sender_->version() > 0) {
      ASSERT_TRUE(flips(receiver)) << "it catches up";
    }
    ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
    for (std::uint64_t version = 1; version <= 3; ++version) {
      fill(version + (always ? 7 : 0));
      ASSERT_THAT(sender_->send_async(), IsOk());
      ASSERT_TRUE(flips(receiver));
      const auto report = sender_->wait_async(patience());
      ASSERT_THAT(report, IsOk());
      const auto worker = std::ranges::find(report->workers, WorkerState::kServing, &WorkerReport::state);
      ASSERT_NE(worker, report->workers.end());
      const std::uint64_t row = kRow;
      EXPECT_EQ(worker->bytes, (always ? BytesRead{.read = 4 * row, .verified = 4 * row}
                                       : BytesRead{.read = 3 * row + row / 2, .verified = 3 * row}));
      std::vector<std::byte> copied(3 * kRow);
      test::download(copied, rows_.get(), 0);
      if (GetParam() == Apply::kCommit) {  // else every other version is in the second set
        EXPECT_TRUE(std::equal(copied.begin(), copied.end(), bytes_.begin() + kRow));
      }
    }
  }
}

TEST_P(DeviceParts, AWrongByteInATileThatIsCopiedWholeIsNamed) {
  fill(5);
  absl::StatusOr<WritableSlot> loan = sender_->loan();
  ASSERT_THAT(loan, IsOk());
  std::byte* const slot = loan->tensors().front().data;
  test::upload(slot, bytes_, 0);
  ASSERT_THAT(sender_->publish(*std::move(loan)), IsOk());
  const auto set = [&](std::size_t at, std::byte byte) { test::upload(slot + at, {&byte, 1}, 0); };
  set(2 * kRow + 5, ~bytes_[2 * kRow + 5]);  // as no healthy trainer does
  set(5, ~bytes_[5]);                        // in a row that the worker does not read
  Receiver receiver = join("");
  for (const Deadline deadline(patience()); !deadline.passed() && receiver.status().error.ok();
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    static_cast<void>(receiver.commit());
  EXPECT_THAT(receiver.status().error.ToString(),
              HasSubstr("slot 0 of version 1: bytes [131072, 196608), where tensor w lies"));
  EXPECT_EQ(receiver.status().version, 0U);
  set(2 * kRow + 5, bytes_[2 * kRow + 5]);
  EXPECT_TRUE(flips(receiver)) << "once the byte is right";
}

}  // namespace
}  // namespace bascule
