#include <bascule/trainer_ref/model/recompute.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace bascule::ref {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct HeldPart : torch::CustomClassHolder {  // what an AutogradContext can hold
  explicit HeldPart(ModelPart p) : part(std::move(p)) {}
  ModelPart part;
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<HeldPart>& held) {
    context->save_for_backward({input});
    context->saved_data["part"] = c10::IValue::make_capsule(held);
    return held->part(input);  // without gradients: that is how LibTorch calls this
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<HeldPart>(context->saved_data["part"].toCapsule());
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor output;
    {
      const at::AutoGradMode with_gradients(true);
      output = held->part(input);
    }
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recomputed(ModelPart part, const at::Tensor& input) {
  if (!at::GradMode::is_enabled() || !input.requires_grad()) return part(input);
  return Recomputed::apply(input, c10::make_intrusive<HeldPart>(std::move(part)));
}

}  // namespace bascule::ref
