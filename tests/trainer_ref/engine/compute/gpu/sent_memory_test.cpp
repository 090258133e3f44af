// Weights that were allocated on another stream than the sending one, and freed while the send is in progress.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include "support/devices/torch_gpu.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/device.h>
#include <bascule/transport/libtorch/tensors.h>

namespace bascule {
namespace {

using test::IsOk;

constexpr std::int64_t kElements = std::int64_t{16} << 20;

at::Tensor filled(float value) {
  return at::full({kElements}, value, at::TensorOptions().dtype(at::kFloat).device(*test::torch_gpu()));
}

TEST(SentMemory, IsNotGivenToTheNextTensorBeforeItIsRead) {
  BASCULE_NEEDS_TORCH_GPU();
  if (!why_no_cuda().ok()) GTEST_SKIP() << why_no_cuda();
  const c10::Device device = *test::torch_gpu();
  const c10::impl::VirtualGuardImpl cuda(at::kCUDA);
  const c10::Stream sends = cuda.getStream(device), allocates = cuda.getStreamFromGlobalPool(device, false);
  const test::TempFolder folder;
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = "cuda-ipc://" + folder.path().string()});
  ASSERT_THAT(sender, IsOk());
  const at::Tensor registered = filled(1);
  ASSERT_THAT(sender->register_model(libtorch::tensors({{"w", registered}})), IsOk());
  const absl::StatusOr<SendReport> expected = sender->send(libtorch::tensors({{"w", filled(2)}}));
  ASSERT_THAT(expected, IsOk());
  ASSERT_THAT(sender->send(), IsOk());

  cuda.exchangeStream(allocates);
  at::Tensor weights = filled(2);
  cuda.synchronizeStream(allocates);
  const void* const place = weights.data_ptr();
  cuda.exchangeStream(sends);
  at::Tensor late = at::rand({4096, 4096}, weights.options());
  for (int i = 0; i < 200; ++i) late = at::matmul(late, late).clamp(-1, 1);  // a few tenths of a second
  ASSERT_THAT(sender->send_async(libtorch::tensors({{"w", weights}})), IsOk());
  weights = at::Tensor();
  cuda.exchangeStream(allocates);
  const at::Tensor next = filled(3);  // would be written at once
  cuda.exchangeStream(sends);
  EXPECT_NE(next.data_ptr(), place);
  const absl::StatusOr<SendReport> report = sender->wait_async();
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->digest, expected->digest) << "the bytes at the time of the send";
}

}  // namespace
}  // namespace bascule
