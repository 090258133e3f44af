// Devices that an engine's process loses, and engines' streams that are late: tests on a real device what
// tests/receiver/{lost_device,late_stream}_test.cpp test on a fake one.
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using testing::HasSubstr;

const auto kOverBoth = testing::Values(Setting{"cuda-ipc", Readers::kProcesses},
                                       Setting{"shm", Readers::kProcesses, Place::kFolder, 0, 0});
std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return info.param.scheme == "shm" ? "Shm" : "CudaIpc";
}

// ---- lost ----

class LostDeviceTest : public ConformanceProcesses {
 protected:
  // One of two workers loses its device; the other is still served, without a delay.
  void lose_one(std::optional<Apply> copies) {
    listen();
    const auto well = join("well"), lost = join("lost", "", copies);
    wait_for_workers(2);
    send_complete(2);
    send_complete(2);
    lost->tell("lose");
    for (int i = 0; i < 8; ++i) {
      for (const WorkerReport& worker : send().workers) {
        EXPECT_EQ(worker.state, worker.worker == "well" ? WorkerState::kServing : WorkerState::kEvicted);
        EXPECT_TRUE(worker.worker == "well" || i == 0) << "it is back in send " << i;
      }
    }
    expect_newest({well.get()});
    const Observed end = lost->wait_until([](const Observed& now) { return now.state == "poisoned"; }, "its end");
    EXPECT_FALSE(end.attached);
    EXPECT_TRUE(end.poisoned);
    EXPECT_EQ(end.version, 2u) << "a flip that failed does not count";
    EXPECT_THAT(end.error, HasSubstr("device is lost"));
    EXPECT_THAT(lost->wait_ready(), HasSubstr("device is lost"));
    EXPECT_EQ(end.wrong, "");
  }
};
INSTANTIATE_TEST_SUITE_P(Device, LostDeviceTest, kOverBoth, name_of);

TEST_P(LostDeviceTest, OfAnEngineThatReadsInPlaceKeepsNobodyFromAVersion) { lose_one(std::nullopt); }
TEST_P(LostDeviceTest, OfAnEngineThatCopiesAtTheFlipKeepsNobodyFromAVersion) { lose_one(Apply::kCommit); }
TEST_P(LostDeviceTest, OfAnEngineThatCopiesInTheBackgroundKeepsNobodyFromAVersion) { lose_one(Apply::kBackground); }

// ---- late ----

class LateDeviceTest : public ConformanceProcesses {
 protected:
  ~LateDeviceTest() override {
    let_pass();
    receiver_.reset();  // before its stream
    (void)cudaFreeHost(seen_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  void connect(std::string_view options) {
    listen(options);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&seen_), sizeof(*seen_)), cudaSuccess);
    absl::StatusOr<Receiver> made =
        Receiver::connect({.endpoint = endpoint(options), .worker = "engine", .device = 0, .stream = stream_});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
  }
  void join_in_place(std::string_view options) {
    connect(options);
    ASSERT_TRUE(receiver_);
    EXPECT_FALSE(receiver_->wait_ready(absl::ZeroDuration()).ok());
    wait_for_workers(1);
  }
  Flip send_and_flip() {
    model_.step(++generation_);
    EXPECT_THAT(sender_->send_async(), IsOk());
    const Flip now = next_flip();
    EXPECT_THAT(sender_->wait_async(patience()), IsOk());
    return now;
  }
  Flip next_flip() {
    Flip now;
    for (const Deadline deadline(patience()); !now.changed && !now.poisoned && !deadline.passed();)
      now = receiver_->commit();
    return now;
  }
  // Blocks the engine's stream until let_pass().
  void hold() {
    passed_ = false;
    const auto wait = [](void* passed) { static_cast<std::atomic<bool>*>(passed)->wait(false); };
    ASSERT_EQ(cudaLaunchHostFunc(stream_, wait, &passed_), cudaSuccess);
  }
  void read(const Flip& served) {
    const std::byte* generation = receiver_->weights(served.slot).find("generation")->data;
    ASSERT_EQ(cudaMemcpyAsync(seen_, generation, sizeof(*seen_), cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  }
  void let_pass() {
    passed_ = true;
    passed_.notify_all();
  }
  void expect_read(std::uint64_t generation) {
    let_pass();
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << "what it reads was unmapped";
    EXPECT_EQ(*seen_, generation);
  }
  static std::string hasty() { return "flip_timeout=300ms"; }

  cudaStream_t stream_ = nullptr;
  std::uint64_t* seen_ = nullptr;
  std::atomic<bool> passed_ = true;
  std::optional<Receiver> receiver_;
};
INSTANTIATE_TEST_SUITE_P(Device, LateDeviceTest, kOverBoth, name_of);

TEST_P(LateDeviceTest, ACopyAtAFlipReadsItsSlotHoweverLateItIs) {
  connect(hasty());
  ASSERT_TRUE(receiver_);
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<TargetTensor> targets;
  for (const TensorSpec& spec : model_.specs()) {
    memory.push_back(device_bytes(0, byte_count(spec.dtype, spec.shape)));
    targets.push_back(
        {.name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .data = memory.back().get(), .device = 0});
  }
  ASSERT_THAT(receiver_->register_model(targets, {.apply = Apply::kCommit}), IsOk());
  EXPECT_FALSE(receiver_->commit().changed);
  wait_for_workers(1);
  EXPECT_TRUE(send_and_flip().changed);
  hold();
  EXPECT_TRUE(send_and_flip().poisoned);
  for (int i = 0; i < 4; ++i) send();  // its slot is retired
  let_pass();
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << "what it reads was unmapped";
  Flip now;
  for (const Deadline deadline(patience()); now.version < sender_->version() && !deadline.passed();)
    now = receiver_->commit();
  EXPECT_EQ(now.version, sender_->version());
  const absl::StatusOr<std::uint64_t> found = generation_of(receiver_->weights(now.slot).tensors(), ModelSize::kSmall);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(*found, generation_);
  receiver_.reset();  // before its tensors
}

TEST_P(LateDeviceTest, ADestructorWaitsForTheEnginesStream) {
  join_in_place("flip_timeout=60s");
  const Flip served = send_and_flip();
  hold();
  read(served);
  auto ended = std::async(std::launch::async, [&] {
    (void)cudaSetDevice(0);
    receiver_.reset();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // long enough to unmap what it reads
  expect_read(generation_);
  ended.get();
}

TEST_P(LateDeviceTest, WhatIsReadBeyondADestructorsDeadlineStaysMapped) {
  join_in_place(hasty());
  const Flip served = send_and_flip();
  hold();
  read(served);
  receiver_.reset();
  expect_read(generation_);
}

TEST_P(LateDeviceTest, TheSlotThatACommitHadLeftStaysMappedBeyondADestructorsDeadline) {
  join_in_place(hasty());
  const Flip served = send_and_flip();
  const std::uint64_t read_generation = generation_;
  hold();
  read(served);
  EXPECT_TRUE(send_and_flip().changed);
  receiver_.reset();
  expect_read(read_generation);
}

}  // namespace
}  // namespace bascule::test
