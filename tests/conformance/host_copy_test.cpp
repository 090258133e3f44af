// Slots in host memory with a GPU at either end: what the suite's small models do not show.
#include <cstring>
#include <random>

#include "conformance/suite.h"
#include <bascule/kernels/processor.h>
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class HostCopyTest : public Stage {};
INSTANTIATE_TEST_SUITE_P(Device, HostCopyTest,
                         testing::Values(Setting{"shm", Readers::kThreads, Place::kFolder, 0, kHost},
                                         Setting{"shm", Readers::kThreads, Place::kFolder, kHost, 0},
                                         Setting{"shm", Readers::kThreads, Place::kFolder, 0, 0},
                                         Setting{"memmap", Readers::kThreads, Place::kFolder, 0, kHost},
                                         Setting{"memmap", Readers::kThreads, Place::kFolder, kHost, 0}),
                         [](const testing::TestParamInfo<Setting>& setting) {
                           const auto name = [](int device) { return device == kHost ? "Host" : "Device"; };
                           return cat(setting.param.scheme, name(setting.param.trainer), "To",
                                      name(setting.param.engine));
                         });

// The slots are cast on the way, in several parts, the last of which is short.
TEST_P(HostCopyTest, SlotsOfSeveralPartsArriveWhole) {
  constexpr std::size_t kElements = (std::size_t{50} << 20) + 777;
  std::vector<float> values(kElements);
  std::vector<std::int32_t> step(3);
  absl::StatusOr<Sender> sender = try_listen("wire_dtype=bf16&digest=always");
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(
      sender->register_model(placed(host_tensors({{{"step", DType::kI32, {3}}, step.data()},
                                                  {{"values", DType::kF32, {std::int64_t{kElements}}}, values.data()}}),
                                    device())),
      IsOk());
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "a", .device = GetParam().engine});
  ASSERT_THAT(receiver, IsOk());
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  ASSERT_THAT(sender->wait_for_workers(1, patience()), IsOk());
  std::mt19937_64 random(7);
  for (int version = 1; version <= 4; ++version) {
    for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) * 1e-6F;
    step.assign(3, version);
    ASSERT_THAT(sender->send_async(), IsOk());
    Flip flip;
    for (const Deadline deadline(patience()); !flip.changed && !deadline.passed();) flip = receiver->commit();
    const absl::StatusOr<SendReport> report = sender->wait_async(patience());
    ASSERT_THAT(report, IsOk());
    ASSERT_TRUE(report->complete()) << report->workers.front().error;
    if (device() != kHost) {
      EXPECT_THAT(report->memory,
                  AnyOf(HasSubstr("registered with device 0"), HasSubstr("pinned buffers of device 0")));
      if (version == 1) std::printf("%s\n", report->memory.c_str());
    }
    const TensorView& read = *receiver->weights(flip.slot).find("values");
    EXPECT_EQ(read.device, engine_device());
    std::vector<std::byte> expected(2 * kElements);
    kernels::plain_processor().run_cast(DType::kF32, DType::kBF16)(reinterpret_cast<const std::byte*>(values.data()),
                                                                   expected.data(), kElements);
    EXPECT_TRUE(bytes_of(read) == expected) << "version " << version;
    std::int32_t last = 0;
    std::memcpy(&last, bytes_of(*receiver->weights(flip.slot).find("step")).data() + 8, 4);
    EXPECT_EQ(last, version);
  }
}

// Writes to a sealed slot, as no healthy trainer does, before any worker has copied it.
TEST_P(HostCopyTest, AWrongByteIsFoundOnTheDeviceAndTheVersionIsServedOnceItIsRight) {
  if (engine_device() == kHost) GTEST_SKIP() << "an engine on the host reads the control page";
  listen();
  absl::StatusOr<WritableSlot> slot = sender_->loan();
  ASSERT_THAT(slot, IsOk());
  write_generation(slot->tensors(), ++generation_);
  std::byte& changed = *slot->tensors().front().data;
  ASSERT_THAT(sender_->publish(*std::move(slot)), IsOk());
  changed ^= std::byte{0x04};
  const auto late = join("late");
  late->wait_until_error(HasSubstr("changed after they were sealed"));
  EXPECT_EQ(late->report().version, 0u);
  changed ^= std::byte{0x04};
  expect_newest({late.get()});
}

TEST_P(HostCopyTest, ASingleCopyOnTheHostIsNoConcernOfAnEngineWithCopiesOnADevice) {
  if (GetParam().scheme != "shm" || device() != kHost) GTEST_SKIP() << "a single copy is the trainer's parameters";
  listen("slots=1");
  const auto a = join("a", "slots=1");
  wait_for_workers(1);
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<WritableSlot> slot = sender_->loan();
    ASSERT_THAT(slot, IsOk());
    model_.step(++generation_);
    const absl::StatusOr<SendReport> report = sender_->publish(*std::move(slot));
    ASSERT_THAT(report, IsOk());
    EXPECT_TRUE(report->complete());
    expect_newest({a.get()});
  }
  {
    const absl::StatusOr<WritableSlot> torn = sender_->loan();
    ASSERT_THAT(torn, IsOk());
    model_.step(generation_ + 1);
  }
  const Observed after = a->report();
  EXPECT_EQ(after.generation, generation_) << "what it copied is its own";
  EXPECT_EQ(after.wrong, "");
}

}  // namespace
}  // namespace bascule::test
