// Promises about devices that the suite does not cover: of cuda-ipc, and of copies of slots in host memory.
#include <cuda_runtime_api.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "conformance/suite.h"
#include "support/processes/trainer.h"
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

class DeviceTest : public ConformanceProcesses {
 protected:
  absl::StatusOr<Receiver> connect(Stream stream) {
    return Receiver::connect({.endpoint = endpoint(), .worker = "engine", .device = 0, .stream = stream});
  }
};
INSTANTIATE_TEST_SUITE_P(CudaIpc, DeviceTest, testing::Values(Setting{"cuda-ipc", Readers::kProcesses}),
                         [](const testing::TestParamInfo<Setting>&) { return "Processes"; });
INSTANTIATE_TEST_SUITE_P(ShmDeviceToDevice, DeviceTest,
                         testing::Values(Setting{"shm", Readers::kProcesses, Place::kFolder, 0, 0}),
                         [](const testing::TestParamInfo<Setting>&) { return "Processes"; });

class DeviceMemoryTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(DeviceMemory, DeviceMemoryTest, testing::Values(Setting{"cuda-ipc", Readers::kProcesses}),
                         [](const testing::TestParamInfo<Setting>&) { return "Processes"; });

void sleep_on_stream(void* milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(*static_cast<int*>(milliseconds)));
}

// The engine's stream is late: it reads the old slot long after the commit() that left it.
TEST_P(DeviceTest, ASlotThatTheEnginesStreamStillReadsIsNotWritten) {
  listen();
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  absl::StatusOr<Receiver> receiver = connect(stream);
  ASSERT_THAT(receiver, IsOk());
  EXPECT_FALSE(receiver->wait_ready(absl::ZeroDuration()).ok());
  wait_for_workers(1);
  std::uint64_t* seen = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&seen), sizeof(*seen)), cudaSuccess);
  const auto flip = [&] {
    Flip now;
    for (const Deadline deadline(patience()); !now.changed && !deadline.passed();) now = receiver->commit();
    EXPECT_TRUE(now.changed);
    return now;
  };
  int delay = 100;
  for (int round = 0; round < 5; ++round) {
    model_.step(++generation_);
    const std::uint64_t old = generation_;
    ASSERT_THAT(sender_->send_async(), IsOk());
    const Flip served = flip();
    ASSERT_THAT(sender_->wait_async(patience()), IsOk());
    const std::byte* generation = receiver->weights(served.slot).find("generation")->data;
    ASSERT_EQ(cudaLaunchHostFunc(stream, sleep_on_stream, &delay), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(seen, generation, sizeof(*seen), cudaMemcpyDeviceToHost, stream), cudaSuccess);
    for (int i = 0; i < 2; ++i) {  // the second one needs the slot that was left
      model_.step(++generation_);
      ASSERT_THAT(sender_->send_async(), IsOk());
      flip();
      ASSERT_THAT(sender_->wait_async(patience()), IsOk());
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(*seen, old) << "round " << round;
  }
  (void)cudaFreeHost(seen);
  { const Receiver ended = *std::move(receiver); }  // before its stream
  (void)cudaStreamDestroy(stream);
}

TEST_P(DeviceTest, KilledReadersAndWritersLeaveNoMemoryOfTheDevice) {
  const auto settles_at = [](std::size_t limit) {  // the driver takes a moment to clear up after a killed process
    std::size_t used = used_bytes(0);
    for (const Deadline deadline(patience()); used > limit && !deadline.passed(); used = used_bytes(0))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return used;
  };
  std::size_t before = 0;
  for (int round = 0; round < 5; ++round) {
    {
      const auto a = join_process("a"), b = join_process("b");
      Trainer trainer(endpoint(), static_cast<std::uint64_t>(1000 * round + 1), device());
      const Sent sent = trainer.send_until(2);
      trainer.tell("run");
      a->wait_for_version(sent.version + 3);
      a->process().signal(SIGKILL);
      b->wait_for_version(sent.version + 6);
      trainer.process().signal(SIGKILL);
      b->wait_until([](const Observed& now) { return !now.attached; }, "being alone");
      EXPECT_EQ(b->report().wrong, "");
      b->process().signal(SIGKILL);
    }
    if (round == 0) before = settles_at(0 + used_bytes(0));
    constexpr std::size_t kNoise = std::size_t{1} << 20;
    const std::size_t after = settles_at(before + kNoise);
    std::printf("round %d: %zu KiB of the device in use\n", round, after >> 10);
    EXPECT_LE(after, before + kNoise) << "round " << round;
    before = std::min(before, after);
  }
}

TEST_P(DeviceMemoryTest, WhatCannotBeDoneIsRefusedByNameWithWhatWouldDo) {
  absl::StatusOr<Sender> sender = try_listen();
  ASSERT_THAT(sender, IsOk());
  const float value = 1;
  const std::string hosts = cat("use ", names_of_schemes(/*on_device=*/false));
  EXPECT_THAT(sender->register_model(host_tensors({{{"a", DType::kF32, {1}}, &value}})),
              StatusIs(StatusCode::kUnimplemented, AllOf(HasSubstr("host memory"), HasSubstr(hosts))));
  const std::string shm = cat("shm://", (folder_.path() / "other").string());
  absl::StatusOr<Sender> other = Sender::listen({.endpoint = cat(shm, "?slots=1")});
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(other->register_model(model_.source()),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("device 0"), HasSubstr("cuda-ipc"))));
  absl::StatusOr<Receiver> receiver = connect(nullptr);
  ASSERT_THAT(receiver, IsOk());
  EXPECT_THAT(receiver->register_model({{.name = "none", .shape = {0}}}),
              StatusIs(StatusCode::kUnimplemented, AllOf(HasSubstr("host memory"), HasSubstr(hosts))));
  absl::StatusOr<Receiver> torn = Receiver::connect({.endpoint = shm, .worker = "a", .device = 0});
  ASSERT_THAT(torn, IsOk());
  EXPECT_THAT(torn->register_model({{.name = "none", .shape = {0}}}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("host memory"), HasSubstr("device 0"))));
}

// digest=always: the device reads every byte before the worker sends `prepared`.
TEST_P(DeviceMemoryTest, AlwaysMeansThatTheDeviceReadsEveryByte) {
  listen("digest=always");
  const auto a = join("a", "digest=always");
  wait_for_workers(1);
  for (int i = 0; i < 10; ++i) send_complete(1);
  expect_newest({a.get()});
}

TEST_P(DeviceMemoryTest, AWorkerOnADeviceThatIsNotThereSaysSo) {
  listen();
  send();
  absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = endpoint(), .worker = "lost", .device = 99});
  ASSERT_THAT(receiver, IsOk());
  for (const Deadline deadline(patience()); !deadline.passed();) {
    const std::string error(message_of(receiver->wait_ready(absl::Milliseconds(50))));
    if (error.find("there is no device 99") != std::string::npos) return;
  }
  FAIL() << receiver->status().error;
}

}  // namespace
}  // namespace bascule::test
