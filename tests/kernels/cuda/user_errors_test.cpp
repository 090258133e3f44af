// The error that the runtime remembers for a thread is the user's: it is neither mistaken for ours nor cleared.
#include <bascule/kernels/cuda_pack.h>
#include <bascule/kernels/cuda_unpack.h>

#include <random>

#include "kernels/layouts.h"
#include "on_device.h"
#include "support/devices/gpu.h"
#include <bascule/kernels/thread_pool.h>
#include <bascule/kernels/tiles.h>

namespace bascule::inline v0::kernels::cuda {
namespace {

constexpr std::size_t kTooMuch = std::size_t{1} << 60;

// Like a program that requested too much memory and continued.
void leave_an_error() {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, kTooMuch), cudaErrorMemoryAllocation);
}

TEST(CudaErrors, ThatTheUserLeftAreNotOursAndStay) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(1);
  Tensors tensors;
  tensors.add_run(DType::kF32, DType::kF32, 100'000, random);
  const OnDevice from(tensors.storages[0]), slot(std::vector<std::byte>(tensors.slot_bytes)),
      to(std::vector<std::byte>(tensors.slot_bytes));
  const std::vector<void*> sources = {from.data()}, targets = {to.data()};
  leave_an_error();
  PackPlan pack;
  ASSERT_CUDA(PackPlan::make(tensors.segments, 1, tensors.slot_bytes, &pack));
  ASSERT_CUDA(pack.pack(sources, slot.data(), true, nullptr));
  UnpackPlan unpack;
  ASSERT_CUDA(UnpackPlan::make(tensors.segments, 1, tensors.slot_bytes, &unpack));
  ASSERT_CUDA(unpack.unpack(slot.data(), targets, true, nullptr));
  DigestCell cell;
  ASSERT_CUDA(DigestCell::make(&cell));
  ASSERT_CUDA(digest(slot.data(), tensors.slot_bytes, cell, nullptr));
  EXPECT_EQ(pack.pack(sources, slot.data() + 8, true, nullptr).code, cudaErrorMisalignedAddress)
      << "our own refusal also leaves it";
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "the user's";
  ASSERT_CUDA_CALL(cudaDeviceSynchronize());
  EXPECT_TRUE(to.bytes() == naive_pack(tensors));
  EXPECT_EQ(to_hex(unpack.digest()), to_hex(pack.digest()));
  EXPECT_EQ(to_hex(cell.digest()), to_hex(pack.digest()));
}

TEST(CudaErrors, OfOursAreToldAndNotLeftToTheUser) {
  BASCULE_NEEDS_GPUS(1);
  DeviceMemory memory;
  const CudaResult result = DeviceMemory::make(kTooMuch, &memory);
  EXPECT_EQ(result.code, cudaErrorMemoryAllocation);
  EXPECT_EQ(result.bytes, kTooMuch);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// A pack that went into a capture never ran: the call that notices returns an error, and the pack does not count.
TEST(CudaPack, CountsOnNothingOfAPackThatItWasToldToForget) {
  BASCULE_NEEDS_GPUS(1);
  std::mt19937_64 random(2);
  Tensors tensors;
  tensors.add_run(DType::kF32, DType::kBF16, 100'000, random);
  const OnDevice before(tensors.storages[0]), from(tensors.storages[0]),
      slot(std::vector<std::byte>(tensors.slot_bytes));
  const std::vector<void*> old = {before.data()}, addresses = {from.data()};
  PackPlan plan;
  ASSERT_CUDA(PackPlan::make(tensors.segments, 1, tensors.slot_bytes, &plan));
  ASSERT_CUDA(plan.pack(old, slot.data(), true, nullptr));
  ASSERT_CUDA_CALL(cudaDeviceSynchronize());
  ASSERT_CUDA_CALL(cudaMemset(before.data(), 0x77, tensors.storages[0].size()));
  cudaStream_t stream = nullptr;
  ASSERT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ASSERT_CUDA_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_TRUE(plan.pack(addresses, slot.data(), true, stream).ok());
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA_CALL(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA_CALL(cudaGraphDestroy(graph));  // it never runs
  plan.forget();
  ASSERT_CUDA(plan.pack(addresses, slot.data(), true, stream));
  ASSERT_CUDA_CALL(cudaStreamSynchronize(stream));
  EXPECT_TRUE(slot.bytes() == naive_pack(tensors));
  ThreadPool pool(2);
  EXPECT_EQ(to_hex(plan.digest()), to_hex(kernels::digest(naive_pack(tensors), pool, plain_processor())));
  ASSERT_CUDA_CALL(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace bascule::inline v0::kernels::cuda
