#include <bascule/trainer_ref/program/torch_device.h>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "support/devices/torch_gpu.h"

namespace bascule::ref {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

using test::torch_gpu;

std::string refusal(std::string_view flag) { return std::string(open_torch_device(flag).status().message()); }

TEST(TorchDevice, RefusesOtherWords) {
  for (const char* flag : {"", "gpu", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:+1", "cpu:0"}) {
    EXPECT_EQ(open_torch_device(flag).status().code(), absl::StatusCode::kInvalidArgument) << flag;
    EXPECT_THAT(refusal(flag), HasSubstr("expected cpu, cuda, cuda:N or auto")) << flag;
  }
}

TEST(TorchDevice, TheSameBinaryComputesOnTheCpu) {
  const absl::StatusOr<c10::Device> device = open_torch_device("cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  const at::Tensor ones = at::ones({3, 5}, *device);
  EXPECT_EQ(at::mm(ones, ones.t()).sum().item<float>(), 45);
}

TEST(TorchDevice, SaysWhatIsMissingWhereThereIsNoGpu) {
  if (torch_gpu().ok()) GTEST_SKIP() << "needs no GPU, found one";
  EXPECT_EQ(torch_gpu().status().code(), absl::StatusCode::kUnavailable);
  for (const char* flag : {"cuda", "cuda:1", "cuda:99", "cuda:99999999999999999999"}) {
    EXPECT_EQ(open_torch_device(flag).status().code(), absl::StatusCode::kUnavailable) << flag;
    EXPECT_THAT(refusal(flag), AnyOf(HasSubstr("found none, as there is no driver"), HasSubstr("cannot be opened"),
                                     HasSubstr("found a driver, but no GPU that this process sees")));
    EXPECT_THAT(refusal(flag), HasSubstr("or give --device=cpu"));
  }
}

TEST(TorchDevice, AutoIsTheCpuWhereThereIsNoGpuAndSaysWhy) {
  if (torch_gpu().ok()) GTEST_SKIP() << "needs no GPU, found one";
  std::string log;
  const auto device = open_torch_device("auto", [&](std::string_view line) { log += line; });
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(device->is_cpu());
  EXPECT_THAT(log, AllOf(HasSubstr("--device=auto: computes on the CPU: "),
                         AnyOf(HasSubstr("this build has no CUDA"), HasSubstr("--device=cuda: "))));
}

TEST(TorchDeviceGpu, AutoIsTheFirstGpuWhereThisBuildHasCuda) {
  BASCULE_NEEDS_TORCH_GPU();
  std::string log;
  const auto device = open_torch_device("auto", [&](std::string_view line) { log += line; });
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(*device, at::Device(at::kCUDA, 0)) << log;
}

TEST(TorchDeviceGpu, OpensTheFirstGpuAndComputesThere) {
  BASCULE_NEEDS_TORCH_GPU();
  EXPECT_EQ(*torch_gpu(), at::Device(at::kCUDA, 0));
  EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  at::manual_seed(1);
  const at::Tensor left = at::randn({64, 512}), right = at::randn({512, 64});
  const at::Tensor product = at::mm(left.to(*torch_gpu()), right.to(*torch_gpu())).cpu();
  EXPECT_LT((product - at::mm(left, right)).abs().max().item<float>(), 1e-3);  // TF32 keeps 10 bits: about 3e-2
}

TEST(TorchDeviceGpu, RefusesANumberThatNoGpuHas) {
  BASCULE_NEEDS_TORCH_GPU();
  for (const char* flag : {"cuda:63", "cuda:99", "cuda:300"})  // 300: more than LibTorch's type of number holds
    EXPECT_THAT(refusal(flag), AllOf(HasSubstr("expected a GPU that this process sees, found "), HasSubstr(", cuda:0"),
                                     EndsWith("or --device=cpu")));
}

}  // namespace
}  // namespace bascule::ref
