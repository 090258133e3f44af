// A trainer and an engine in one process, with one tensor on the device and the program's pointer to it.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/cuda/device_tensors.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {

// Bytes on a device, all with one value.
class Filled {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  explicit Filled(int value, int device = 0) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data_, kBytes), cudaSuccess);
    fill(value);
  }
  ~Filled() { (void)cudaFree(data_); }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;
  void fill(int value) {
    EXPECT_EQ(cudaMemset(data_, value, kBytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// A stream that waits for no other stream.
class OwnStream {
 public:
  explicit OwnStream(int device = 0) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  ~OwnStream() { (void)cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Pair : public testing::Test {
 protected:
  static TensorSpec spec() { return {"model.norm", DType::kU8, {static_cast<std::int64_t>(Filled::kBytes)}}; }

  std::string endpoint(std::string_view scheme) const {
    return cat(scheme, "://", folder_.path().string(), "?heartbeat=50ms");
  }
  // Tensors at the address that place_ holds at each call.
  std::unique_ptr<TensorSource> source(Stream stream, int device = 0) {
    std::vector<std::pair<TensorSpec, void**>> tensors = {{spec(), &place_}};
    return std::make_unique<cuda::DeviceParameters>(device, std::move(tensors), nullptr, stream);
  }
  void listen(std::string_view scheme, Stream stream) {
    absl::StatusOr<Sender> made = Sender::listen({.endpoint = endpoint(scheme)});
    ASSERT_THAT(made, IsOk());
    ASSERT_THAT(made->register_model(source(stream)), IsOk());
    sender_.emplace(*std::move(made));
  }
  // Reads in place, or copies on the device as the endpoint says.
  void join(std::string_view scheme, Stream stream) {
    absl::StatusOr<Receiver> made =
        Receiver::connect({.endpoint = endpoint(scheme), .worker = "engine", .device = 0, .stream = stream});
    ASSERT_THAT(made, IsOk());
    receiver_.emplace(*std::move(made));
  }
  void join_with_targets(std::string_view scheme, Stream stream, const Filled& tensors, Apply apply) {
    join(scheme, stream);
    ASSERT_THAT(receiver_->register_model({{.name = "model.norm",
                                            .dtype = DType::kU8,
                                            .shape = {static_cast<std::int64_t>(Filled::kBytes)},
                                            .data = static_cast<std::byte*>(tensors.data()),
                                            .device = 0}},
                                          {.apply = apply}),
                IsOk());
  }
  void expect_engine() {
    EXPECT_FALSE(receiver_->commit().changed);  // it greets
    ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  }
  // Sends while the engine commits, and returns the outcome; served_ is the engine's last Flip.
  absl::Status send() {
    BASCULE_TRY(sender_->send_async());
    std::optional<absl::StatusOr<SendReport>> report;
    for (const Deadline deadline(patience()); !report && !deadline.passed();) {
      served_ = receiver_->commit();
      report = sender_->wait_async(absl::Milliseconds(2));
      if (absl::IsDeadlineExceeded(report->status())) report.reset();
    }
    if (!report) return absl::DeadlineExceededError("the send did not end");
    BASCULE_TRY(report->status());
    if (!(*report)->complete()) return (*report)->workers.front().error;
    return absl::OkStatus();
  }
  // How many bytes of the engine's tensor have that value.
  std::ptrdiff_t bytes_of(int value) {
    const TensorView* const tensor = receiver_->weights(served_.slot).find("model.norm");
    EXPECT_NE(tensor, nullptr);
    std::vector<unsigned char> bytes(Filled::kBytes);
    EXPECT_EQ(cudaMemcpy(bytes.data(), tensor->data, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    return std::ranges::count(bytes, static_cast<unsigned char>(value));
  }

  // An engine's stream must outlive its receiver.
  cudaStream_t own_stream(int device = 0) { return streams_.emplace_back(device).get(); }

  const TempFolder folder_;
  std::deque<OwnStream> streams_;
  void* place_ = nullptr;
  std::optional<Sender> sender_;
  std::optional<Receiver> receiver_;
  Flip served_;
};

}  // namespace bascule::test
