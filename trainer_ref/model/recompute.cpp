#include <bascule/trainer_ref/model/recompute.h>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <utility>

namespace bascule::ref {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct HeldPart : torch::CustomClassHolder {  // what an AutogradContext can hold
  explicit HeldPart(ModelPart p) : part(std::move(p)) {}
  ModelPart part;
  at::Tensor random = {};  // the state of the device's generator before the part ran
};

// Exchanges the state of a device's generator; an undefined one leaves it.
at::Tensor exchange_random(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  at::Tensor before = generator.get_state();
  if (state.defined()) generator.set_state(state);
  return before;
}

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<HeldPart>& held) {
    context->save_for_backward({input});
    context->saved_data["part"] = c10::IValue::make_capsule(held);
    held->random = exchange_random(input.device(), {});
    return held->part(input);  // without gradients: that is how LibTorch calls this
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto held = c10::static_intrusive_pointer_cast<HeldPart>(context->saved_data["part"].toCapsule());
    const at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor output;
    {
      const at::AutoGradMode with_gradients(true);
      const at::Tensor now = exchange_random(input.device(), held->random);
      output = held->part(input);
      exchange_random(input.device(), now);
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
