// Random tensors, on the host for a plain twin and on the device for a kernel, and how far apart the two results are.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "support/devices/gpu.h"
#include <bascule/kernels/cuda_result.h>
#include <bascule/trainer_ref/ops/plain_real.h>

namespace bascule::ref::ops {

#define ASSERT_CUDA(result)                                                                                \
  do {                                                                                                     \
    const ::bascule::kernels::cuda::CudaResult bascule_result = (result);                                  \
    ASSERT_TRUE(bascule_result.ok()) << bascule_result.call << ": "                                        \
                                     << cudaGetErrorString(static_cast<cudaError_t>(bascule_result.code)); \
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);                                                       \
  } while (false)

// The same values in both memories.
template <typename T>
class Both {
 public:
  explicit Both(std::vector<T> values) : host(std::move(values)) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, std::max<std::size_t>(1, host.size() * sizeof(T))), cudaSuccess);
    device_.reset(static_cast<T*>(made));
    EXPECT_EQ(cudaMemcpy(made, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  explicit Both(std::size_t count) : Both(std::vector<T>(count)) {}

  T* device() const { return device_.get(); }
  std::vector<T> fetched() const {
    std::vector<T> values(host.size());
    EXPECT_EQ(cudaMemcpy(values.data(), device(), host.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

  std::vector<T> host;

 private:
  struct Free {
    void operator()(T* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<T, Free> device_;
};

// A tensor of F32 or BF16.
class RealTensor {
 public:
  RealTensor(std::size_t count, DType dtype) : dtype_(dtype), bytes_(std::vector<std::byte>(count * size_of(dtype))) {}
  static RealTensor random(std::mt19937& random, std::size_t count, DType dtype, float spread = 1, float middle = 0) {
    RealTensor tensor(count, dtype);
    std::normal_distribution<float> normal(middle, spread);
    std::vector<std::byte> bytes(count * size_of(dtype));
    const plain::Reals reals{bytes.data(), dtype};
    for (std::size_t i = 0; i < count; ++i) reals.set(i, normal(random));
    tensor.bytes_ = Both<std::byte>(std::move(bytes));
    return tensor;
  }
  plain::Reals host() { return {bytes_.host.data(), dtype_}; }
  void* device() const { return bytes_.device(); }
  std::size_t size() const { return bytes_.host.size() / size_of(dtype_); }

  // The largest difference between the device's and the host's values, as a share of the host's largest.
  double difference() {
    std::vector<std::byte> found = bytes_.fetched();
    const plain::Reals on_device{found.data(), dtype_};
    double apart = 0, largest = 1e-30;
    for (std::size_t i = 0; i < size(); ++i) {
      const double difference = std::abs(static_cast<double>(on_device[i]) - host()[i]);
      if (!(difference <= apart)) apart = difference;  // NaNs count
      largest = std::max(largest, std::abs(static_cast<double>(host()[i])));
    }
    return apart / largest;
  }

 private:
  DType dtype_;
  Both<std::byte> bytes_;
};

// A few roundings of the type.
inline double tolerance(DType dtype) { return dtype == DType::kF32 ? 2e-5 : 0.012; }

}  // namespace bascule::ref::ops
