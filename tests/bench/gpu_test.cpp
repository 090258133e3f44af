#include <bascule/bench/gpu.h>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <vector>

#include "support/devices/gpu.h"
#include "support/status.h"
#include <bascule/bench/content.h>
#include <bascule/bench/model.h>
#include <bascule/kernels/thread_pool.h>

namespace bascule::bench {
namespace {

using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

std::vector<std::byte> downloaded(const TensorView& tensor) {
  std::vector<std::byte> bytes(byte_count(tensor.dtype, tensor.shape));
  EXPECT_EQ(cudaMemcpy(bytes.data(), tensor.data, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  return bytes;
}

TEST(Gpu, MakesTheContentThatTheHostMakes) {
  BASCULE_NEEDS_GPUS(1);
  kernels::ThreadPool pool(2);
  const absl::StatusOr<std::shared_ptr<Gpu>> gpu = Gpu::open(0);
  ASSERT_THAT(gpu, IsOk());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    absl::StatusOr<Model> model = Model::make({.bytes = 1 << 20, .tensors = 20, .dtype = dtype}, 7, pool, *gpu);
    ASSERT_THAT(model, IsOk());
    ASSERT_THAT(model->step(3), IsOk());
    const std::unique_ptr<TensorSource> source = model->source();
    const absl::StatusOr<std::span<const TensorView>> views = source->views();
    ASSERT_THAT(views, IsOk());
    for (const TensorView& view : *views) {
      std::vector<std::byte> expected(byte_count(view.dtype, view.shape));
      Content(7, 3).write(view.name, dtype, 0, element_count(view.shape), expected.data());
      EXPECT_EQ(downloaded(view), expected) << view.name;
    }
  }
}

TEST(Gpu, NamesTheElementThatIsWrong) {
  BASCULE_NEEDS_GPUS(1);
  const absl::StatusOr<std::shared_ptr<Gpu>> gpu = Gpu::open(0);
  ASSERT_THAT(gpu, IsOk());
  constexpr std::int64_t kElements = 100'000;
  const absl::StatusOr<std::shared_ptr<std::byte>> memory = (*gpu)->allocate(2 * kElements);
  ASSERT_THAT(memory, IsOk());
  const Content content(1, 5);
  ASSERT_THAT((*gpu)->write(content.elements("weight", kElements, DType::kBF16, DType::kBF16), memory->get()), IsOk());
  const std::vector<std::int64_t> shape = {kElements};
  const TensorView view{
      .name = "weight", .dtype = DType::kBF16, .shape = shape, .strides = {}, .data = memory->get(), .device = 0};
  const auto check = [&] { return content.check({&view, 1}, DType::kBF16, 1, 2 * kElements, gpu->get()); };
  EXPECT_THAT(check(), IsOk());
  ASSERT_EQ(cudaMemset(memory->get() + 2 * 77'777, 0, 1), cudaSuccess);
  EXPECT_THAT(check(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("weight is wrong at element 77777")));
  EXPECT_THAT(content.check({&view, 1}, DType::kBF16, 1, 2 * kElements),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("lies in device 0, expected host memory")));
}

TEST(Gpu, CopiesBetweenItselfAndTheHost) {
  BASCULE_NEEDS_GPUS(1);
  const absl::StatusOr<std::shared_ptr<Gpu>> gpu = Gpu::open(0);
  ASSERT_THAT(gpu, IsOk());
  constexpr std::uint64_t kBytes = 1 << 20;
  const absl::StatusOr<std::shared_ptr<std::byte>> memory = (*gpu)->allocate(kBytes);
  ASSERT_THAT(memory, IsOk());
  ASSERT_THAT((*gpu)->write({.first_word = 1, .count = kBytes / 4}, memory->get()), IsOk());
  for (const auto& [from, to] : {std::pair(0, 0), std::pair(0, kHost), std::pair(kHost, 0)}) {
    const absl::StatusOr<std::unique_ptr<PlainCopy>> copy = make_device_copy(from, to, kBytes);
    ASSERT_THAT(copy, IsOk());
    const absl::StatusOr<double> seconds = (*copy)->run({memory->get(), kBytes});
    ASSERT_THAT(seconds, IsOk());
    EXPECT_GT(*seconds, 0) << (*copy)->name();
  }
}

TEST(Gpu, ThatIsNotThereIsNamedWithHowManyThereAre) {
  EXPECT_THAT(Gpu::open(1000), StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is no GPU 1000: this process")));
}

}  // namespace
}  // namespace bascule::bench
