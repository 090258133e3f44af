#include <bascule/trainer_ref/model/recompute.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

struct TwoLayers {
  at::Tensor first = at::linspace(-1, 1, 12).reshape({4, 3}).requires_grad_();
  at::Tensor second = at::linspace(2, -1, 12).reshape({3, 4}).requires_grad_();
  at::Tensor input = at::linspace(-2, 1, 15).reshape({5, 3}).requires_grad_();
  int calls = 0;

  ModelPart part() {
    return [this](const at::Tensor& x) {
      ++calls;
      return at::linear(at::silu(at::linear(x, first)), second).tanh();
    };
  }
  std::vector<at::Tensor> gradients() const { return {first.grad(), second.grad(), input.grad()}; }
};

TEST(Recompute, GradientsAreTheSameBits) {
  TwoLayers kept, again;
  kept.part()(kept.part()(kept.input)).square().sum().backward();
  const at::Tensor output = recomputed(again.part(), recomputed(again.part(), again.input));
  EXPECT_EQ(again.calls, 2);
  output.square().sum().backward();
  EXPECT_EQ(again.calls, 4) << "each part once more";
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(again.gradients()[i].defined()) << i;
    EXPECT_TRUE(at::equal(kept.gradients()[i], again.gradients()[i])) << i;
  }
}

TEST(Recompute, WithoutGradientsIsAPlainCall) {
  TwoLayers layers;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(recomputed(layers.part(), layers.input), layers.part()(layers.input)));
  EXPECT_FALSE(recomputed(layers.part(), layers.input).requires_grad());
}

TEST(Recompute, APartThatFailsInTheBackwardPassFailsThatPass) {
  TwoLayers layers;
  int calls = 0;
  const at::Tensor output = recomputed(
      [&](const at::Tensor& x) {
        TORCH_CHECK(++calls == 1, "no memory");
        return layers.part()(x);
      },
      layers.input);
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace bascule::ref
