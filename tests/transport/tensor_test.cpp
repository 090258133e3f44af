#include <bascule/transport/tensor.h>

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace bascule {
namespace {

TEST(Tensor, CountsElementsAndBytes) {
  EXPECT_EQ(element_count(std::array<std::int64_t, 3>{2, 3, 4}), 24);
  EXPECT_EQ(element_count({}), 1) << "a scalar";
  EXPECT_EQ(element_count(std::array<std::int64_t, 2>{0, 5}), 0);
  EXPECT_EQ(byte_count(DType::kF64, std::array<std::int64_t, 1>{3}), 24);
  EXPECT_EQ(byte_count(DType::kF8E4M3, std::array<std::int64_t, 1>{3}), 3);
  EXPECT_EQ(byte_count(DType::kBF16, {}), 2);
}

TEST(Tensor, SaysNameTypeAndShape) {
  const TensorSpec spec{.name = "embed", .dtype = DType::kBF16, .shape = {151936, 896}};
  EXPECT_EQ(to_string(spec), "embed BF16 [151936, 896]");
  EXPECT_EQ(to_string(TensorSpec{.name = "scale", .dtype = DType::kF32, .shape = {}}), "scale F32 []");
  EXPECT_EQ(to_string(TensorView{.name = spec.name, .dtype = spec.dtype, .shape = spec.shape, .strides = {}}),
            to_string(spec));
}

TEST(HostTensors, YieldsTheGivenTensorsInTheirOrder) {
  const std::array<float, 6> weight{};
  const std::int32_t step = 0;
  HostTensors tensors({{{.name = "w", .dtype = DType::kF32, .shape = {2, 3}}, weight.data()},
                       {{.name = "step", .dtype = DType::kI32, .shape = {}}, &step}});
  for (int pass = 0; pass < 2; ++pass) {
    const auto views = tensors.views();
    ASSERT_TRUE(views.ok());
    ASSERT_EQ(views->size(), 2);
    EXPECT_EQ(to_string((*views)[0]), "w F32 [2, 3]");
    EXPECT_EQ((*views)[0].data, reinterpret_cast<const std::byte*>(weight.data()));
    EXPECT_TRUE((*views)[0].strides.empty()) << "contiguous";
    EXPECT_EQ(to_string((*views)[1]), "step I32 []");
    EXPECT_EQ((*views)[1].data, reinterpret_cast<const std::byte*>(&step));
  }
}

TEST(HostTensors, KeepsItsViewsWhenItIsMoved) {
  const float weight = 0;
  HostTensors first({{{.name = "w", .dtype = DType::kF32, .shape = {1}}, &weight}});
  HostTensors second = std::move(first);
  EXPECT_EQ(to_string((*second.views())[0]), "w F32 [1]");
  static_assert(!std::is_copy_constructible_v<HostTensors>);
}

TEST(HostTensors, TellWhatChanges) {
  float here = 0, there = 0;
  HostTensors tensors({{{.name = "w", .dtype = DType::kF32, .shape = {1}}, &here}});
  void* pointer = &here;
  HostParameters parameters({{{.name = "w", .dtype = DType::kF32, .shape = {1}}, &pointer}}, nullptr);
  const auto numbers = [](const TensorSource& source) { return std::pair(source.edition(), source.moves()); };
  ASSERT_TRUE(tensors.views().ok() && parameters.views().ok());
  const auto before = numbers(tensors), of_parameters = numbers(parameters);
  EXPECT_TRUE(before.first != 0 && before.second != 0 && of_parameters.first != 0 && of_parameters.second != 0)
      << "0 means unknown";
  ASSERT_TRUE(parameters.views().ok());
  EXPECT_EQ(numbers(parameters), of_parameters);
  pointer = &there;
  EXPECT_EQ(tensors.views()->front().data, reinterpret_cast<const std::byte*>(&here));
  EXPECT_EQ(parameters.views()->front().data, reinterpret_cast<const std::byte*>(&there));
  EXPECT_EQ(numbers(tensors), before);
  EXPECT_EQ(parameters.edition(), of_parameters.first);
  EXPECT_GT(parameters.moves(), of_parameters.second);
}

TEST(BorrowedTensors, TellsOfOtherStridesAndNotOfOtherAddresses) {
  const std::array<float, 12> here{}, there{};
  BorrowedTensors first({{.spec = {.name = "w", .dtype = DType::kF32, .shape = {2, 3}}, .data = here.data()}});
  BorrowedTensors tensors = std::move(first);
  const std::uint64_t edition = tensors.edition();
  EXPECT_NE(edition, 0u);
  const std::uint64_t moves = tensors.moves();
  EXPECT_NE(moves, 0u);
  tensors.move(0, there.data());
  EXPECT_EQ(tensors.edition(), edition);
  EXPECT_GT(tensors.moves(), moves);
  tensors.move(0, there.data(), {3, 1});
  EXPECT_GT(tensors.edition(), edition);
  const std::uint64_t with_strides = tensors.edition();
  tensors.move(0, here.data(), {3, 1});
  EXPECT_EQ(tensors.edition(), with_strides);
  const TensorView view = tensors.views()->front();
  EXPECT_EQ(to_string(view), "w F32 [2, 3]");
  EXPECT_EQ(view.data, reinterpret_cast<const std::byte*>(here.data()));
  EXPECT_EQ(std::vector(view.strides.begin(), view.strides.end()), (std::vector<std::int64_t>{3, 1}));
}

}  // namespace
}  // namespace bascule
