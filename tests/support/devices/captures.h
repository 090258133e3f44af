// A capture of a stream into a graph, as engines make them, and a thread that makes such captures one after another.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace bascule::test {

class Capture {
 public:
  // `flags` are the stream's: blocking or not. The capture contains one memset.
  Capture(unsigned flags, cudaStreamCaptureMode mode) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, flags), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&memory_, 64), cudaSuccess);
    begin(mode);
  }
  ~Capture() {
    if (capturing_) end();
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(memory_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  cudaStream_t stream() const { return stream_; }
  void begin(cudaStreamCaptureMode mode) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(memory_, 1, 64, stream_), cudaSuccess);
    capturing_ = true;
  }
  // Ends the capture. Returns false if it had already ended, or had been made to wait for other work.
  bool end() {
    capturing_ = false;
    const bool added = cudaMemsetAsync(memory_, 2, 64, stream_) == cudaSuccess;
    cudaGraph_t graph = nullptr;
    const bool whole = cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph != nullptr;
    std::size_t nodes = 0;
    if (whole) (void)cudaGraphGetNodes(graph, nullptr, &nodes);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return added && whole && nodes == 2;
  }

 private:
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  bool capturing_ = false;
};

// Captures on a separate stream, one capture right after another, until it is stopped.
class CapturingThread {
 public:
  CapturingThread(unsigned flags, cudaStreamCaptureMode mode)
      : thread_([this, flags, mode] {
          Capture capture(flags, mode);
          under_way_ = true;
          under_way_.notify_all();
          while (true) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            ++ended_;
            if (!capture.end()) ++broken_;
            if (done_) return;
            capture.begin(mode);
          }
        }) {
    under_way_.wait(false);
  }
  ~CapturingThread() { stop(); }
  CapturingThread(const CapturingThread&) = delete;
  CapturingThread& operator=(const CapturingThread&) = delete;

  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int ended() const { return ended_; }
  int broken() const { return broken_; }

 private:
  std::atomic<bool> under_way_ = false, done_ = false;
  std::atomic<int> ended_ = 0, broken_ = 0;
  std::thread thread_;
};

}  // namespace bascule::test
