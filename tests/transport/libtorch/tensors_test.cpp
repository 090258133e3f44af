// LibTorch's tensors to tensor views and back.
#include <bascule/transport/libtorch/tensors.h>

#include <gmock/gmock.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/sender/registration.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/libtorch/parameters.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

using Named = std::vector<std::pair<std::string, at::Tensor>>;

class LibTorch : public testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_F(LibTorch, EveryTypeGoesBothWays) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    const at::ScalarType type = libtorch::scalar_type_of(dtype);
    EXPECT_EQ(c10::elementSize(type), size_of(dtype)) << name_of(dtype);
    const auto back = libtorch::dtype_of(type);
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(*back, dtype) << name_of(dtype);
  }
}

TEST_F(LibTorch, ViewsTheTensorsOwnMemory) {
  const at::Tensor weight = at::arange(6, at::kFloat).reshape({2, 3});
  const at::Tensor scalar = at::full({}, 7, at::kLong);
  const auto source = libtorch::tensors({{"w", weight}, {"s", scalar}});
  const auto views = source->views();
  ASSERT_THAT(views, IsOk());
  ASSERT_EQ(views->size(), 2);
  EXPECT_EQ(to_string((*views)[0]), "w F32 [2, 3]");
  EXPECT_THAT((*views)[0].strides, ElementsAre(3, 1));
  EXPECT_EQ((*views)[0].data, weight.data_ptr());
  EXPECT_EQ(to_string((*views)[1]), "s I64 []");
}

TEST_F(LibTorch, ViewsATensorThatIsNotContiguousWithItsStrides) {
  const at::Tensor storage = at::arange(24, at::kFloat).reshape({4, 6});
  const at::Tensor transposed = storage.t(), sliced = storage.slice(1, 1, 5, 2), expanded = storage[0].expand({3, 6});
  const auto source = libtorch::tensors({{"t", transposed}, {"s", sliced}, {"e", expanded}});
  const auto views = source->views();
  ASSERT_THAT(views, IsOk());
  EXPECT_THAT((*views)[0].strides, ElementsAre(1, 6));
  EXPECT_THAT((*views)[1].strides, ElementsAre(6, 2));
  EXPECT_EQ((*views)[1].data, static_cast<const std::byte*>(storage.data_ptr()) + sizeof(float));
  EXPECT_THAT((*views)[2].strides, ElementsAre(0, 1));
  EXPECT_TRUE(at::equal(libtorch::tensor_over((*views)[0]), transposed));
  EXPECT_TRUE(at::equal(libtorch::tensor_over((*views)[1]), sliced));
  EXPECT_TRUE(at::equal(libtorch::tensor_over((*views)[2]), expanded));
}

TEST_F(LibTorch, PutsATensorOverTheSameMemory) {
  std::array<std::int16_t, 6> memory = {1, 2, 3, 4, 5, 6};
  const std::array<std::int64_t, 2> shape = {2, 3};
  const at::Tensor tensor = libtorch::tensor_over({.name = "w",
                                                   .dtype = DType::kI16,
                                                   .shape = shape,
                                                   .strides = {},
                                                   .data = reinterpret_cast<const std::byte*>(memory.data())});
  EXPECT_EQ(tensor.data_ptr(), memory.data());
  EXPECT_EQ(tensor.scalar_type(), at::kShort);
  EXPECT_THAT(tensor.sizes(), ElementsAre(2, 3));
  memory[4] = 50;
  EXPECT_EQ(tensor[1][1].item<int>(), 50);
}

TEST_F(LibTorch, RefusesByNameWhatCannotBeSent) {
  const at::Tensor fine = at::zeros({2});
  const auto refused = [&](const at::Tensor& tensor, const std::string& text) {
    EXPECT_THAT(libtorch::tensors({{"fine", fine}, {"odd", tensor}})->views(),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("tensor odd"), HasSubstr(text))));
  };
  refused(at::Tensor(), "is undefined");
  refused(at::zeros({2}, at::kComplexDouble), "LibTorch's type ComplexDouble cannot be sent");
  refused(at::zeros({2, 2}).to_sparse(), "not strided");
  refused(at::zeros({2}, at::TensorOptions().device(at::kMeta)), "lies on meta");
}

TEST_F(LibTorch, TiedParametersTravelOnce) {
  const at::Tensor embed = at::rand({4, 2});
  const auto made =
      Registration::make(libtorch::tensors({{"embed", embed}, {"head", embed}, {"head_t", embed.t()}}), std::nullopt);
  ASSERT_THAT(made, IsOk());
  EXPECT_THAT(made->layout().aliases(), ElementsAre(Alias{"head", 0}));
  EXPECT_EQ(made->layout().tensors().size(), 2) << "transposed it is another tensor";
}

// ---- a single copy ----

TEST_F(LibTorch, ParametersThatMovedIntoASlotOutliveTheirSenders) {
  const test::TempFolder folder;
  const auto module = std::make_shared<torch::nn::Sequential>(torch::nn::Linear(300, 200), torch::nn::Linear(200, 300));
  torch::nn::Module& both = **module;
  const at::Tensor tied = both.named_parameters()["0.bias"].detach();  // another tensor of the same storage
  const std::vector<at::Tensor> kept = {both.named_parameters()["0.weight"].detach().clone(), tied.clone()};
  const auto named = [&] {
    Named list = {{"tied", tied}};
    for (const auto& item : both.named_parameters()) list.emplace_back(item.key(), item.value());
    return list;
  };
  const torch::NoGradGuard no_grad;
  at::Tensor row;
  for (int sender = 0; sender < 3; ++sender) {
    auto made = Sender::listen({.endpoint = "shm://" + folder.path().string() + "?slots=1"});
    ASSERT_THAT(made, IsOk());
    ASSERT_THAT(made->register_model(libtorch::tensors(named())), IsOk());
    EXPECT_EQ(tied.data_ptr(), both.named_parameters()["0.bias"].data_ptr());
    absl::StatusOr<WritableSlot> slot = made->loan();
    ASSERT_THAT(slot, IsOk());
    for (at::Tensor& parameter : both.parameters()) parameter.add_(1);
    ASSERT_THAT(made->publish(*std::move(slot)), IsOk());
    row = both.named_parameters()["0.weight"][7];  // a view of the slot
  }
  for (at::Tensor& parameter : both.parameters()) parameter.add_(1);
  EXPECT_TRUE(at::allclose(both.named_parameters()["0.weight"], kept[0] + 4));
  EXPECT_TRUE(at::allclose(tied, kept[1] + 4));
  for (at::Tensor& parameter : both.parameters()) parameter.set_data(at::zeros({1}));
  row.add_(1);
  EXPECT_TRUE(at::allclose(row, kept[0][7] + 5)) << "the view alone keeps it";
}

TEST_F(LibTorch, ATensorThatCannotMoveIsNamedAndThoseThatDidKeepTheirMemory) {
  const auto memory = std::make_shared<std::array<float, 8>>();
  auto* const place = reinterpret_cast<std::byte*>(memory->data());
  const at::Tensor moves = at::ones({4});
  {
    const auto source = libtorch::tensors({{"moves", moves}, {"stays", at::Tensor()}});
    EXPECT_THAT(source->move_into(std::array{place, place + 16}, memory),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("tensor stays cannot be moved into the slot")));
  }
  EXPECT_EQ(moves.data_ptr(), place);
  EXPECT_EQ(memory.use_count(), 2);
}

// Replaces LibTorch's GPU part: one stream, and the memory that its allocator is told about.
class Gpu final : public c10::impl::DeviceGuardImplInterface {
 public:
  Gpu() : before_(c10::impl::device_guard_impl_registry[static_cast<std::size_t>(at::kCUDA)].exchange(this)) {}
  ~Gpu() override { c10::impl::device_guard_impl_registry[static_cast<std::size_t>(at::kCUDA)] = before_; }
  static c10::Stream current() { return c10::Stream(c10::Stream::UNSAFE, device(), 5); }
  static c10::Device device() { return {at::kCUDA, 0}; }

  c10::DeviceType type() const override { return at::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return current(); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    EXPECT_EQ(stream, current());
    told_.push_back(data.get());
  }

  // A tensor of host memory, which is never read; `allocator`, if given, counts as its maker.
  at::Tensor tensor(std::vector<float>& values, c10::Allocator* allocator) const {
    const std::size_t bytes = values.size() * sizeof(float);
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(values.data(), device()), allocator,
                         false);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), caffe2::TypeMeta::Make<float>());
    made.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<std::int64_t>(values.size())});
    return made;
  }
  mutable std::vector<const void*> told_;

 private:
  const c10::impl::DeviceGuardImplInterface* const before_;
};

// Otherwise memory that is freed right after send_async() would become the next tensor of the stream that it was
// allocated for before it was read. Told at each send, because the memory may have changed.
TEST_F(LibTorch, TellsTheAllocatorOfTheStreamThatSends) {
  const Gpu gpu;
  std::vector<float> one(8), two(8), slot(8);
  const at::Tensor first = gpu.tensor(one, c10::GetAllocator(at::kCPU));
  const auto source = libtorch::tensors(
      {{"a", first}, {"b", gpu.tensor(two, c10::GetAllocator(at::kCPU))}, {"slot", gpu.tensor(slot, nullptr)}});
  for (int send = 0; send < 2; ++send) {
    gpu.told_.clear();
    ASSERT_THAT(source->views(), IsOk());
    EXPECT_THAT(gpu.told_, ElementsAre(one.data(), two.data())) << "and not of what it did not make";
  }
  const at::Tensor on_host = at::zeros({4});
  gpu.told_.clear();
  ASSERT_THAT(libtorch::tensors({{"h", on_host}})->views(), IsOk());
  EXPECT_THAT(gpu.told_, testing::IsEmpty());
}

// A module with a nested one, a buffer, and a bias that is switched off.
struct Policy : torch::nn::Module {
  Policy()
      : inner(register_module("inner", torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)))),
        scale(register_parameter("scale", at::ones({3}))),
        steps(register_buffer("steps", at::zeros({1}, at::kLong))) {}
  torch::nn::Linear inner;
  at::Tensor scale, steps;
};

std::vector<std::string> texts(std::span<const TensorView> views) {
  std::vector<std::string> all;
  for (const TensorView& view : views) all.push_back(to_string(view));
  return all;
}

TEST_F(LibTorch, NamesParametersAndBuffersOfAModule) {
  const auto policy = std::make_shared<Policy>();
  const auto source = libtorch::parameters(policy);
  const auto views = source->views();
  ASSERT_THAT(views, IsOk());
  EXPECT_THAT(texts(*views),
              testing::UnorderedElementsAre("inner.weight F32 [2, 3]", "scale F32 [3]", "steps I64 [1]"));
}

TEST_F(LibTorch, FollowsParametersThatAModuleReplaced) {
  const auto policy = std::make_shared<Policy>();
  const auto source = libtorch::parameters(policy);
  ASSERT_THAT(source->views(), IsOk());
  const at::Tensor fresh = at::rand({3});
  policy->named_parameters()["scale"].set_data(fresh);
  policy->inner->weight = policy->inner->register_parameter("weight2", at::rand({5}));
  const auto views = source->views();
  ASSERT_THAT(views, IsOk());
  EXPECT_THAT(texts(*views), testing::Contains("inner.weight2 F32 [5]"));
  const auto scale = std::ranges::find(*views, "scale", &TensorView::name);
  ASSERT_NE(scale, views->end());
  EXPECT_EQ(scale->data, fresh.data_ptr());
}

TEST_F(LibTorch, FollowsAModuleThatChangedItsType) {
  const auto policy = std::make_shared<Policy>();
  const auto source = libtorch::parameters(policy);
  policy->to(at::kBFloat16);
  const auto views = source->views();
  ASSERT_THAT(views, IsOk());
  EXPECT_THAT(texts(*views), testing::IsSupersetOf({"inner.weight BF16 [2, 3]", "scale BF16 [3]"}));
}

}  // namespace
}  // namespace bascule
