// The parameters and buffers of a torch::nn::Module, by LibTorch's dotted names.
#pragma once

#include <torch/nn/module.h>

#include <bascule/transport/libtorch/tensors.h>

namespace bascule::inline v0::libtorch {

// Each send reads the module's tensors anew, so tensors may be replaced between sends (module->to(...)).
class ModuleParameters final : public TensorSource {
 public:
  explicit ModuleParameters(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}

  absl::StatusOr<std::span<const TensorView>> views() override {
    std::vector<std::pair<std::string, at::Tensor>> named;
    for (const auto& item : module_->named_parameters()) named.emplace_back(item.key(), item.value());
    for (const auto& item : module_->named_buffers()) named.emplace_back(item.key(), item.value());
    list_ = TensorList(std::move(named));
    return list_.views();
  }
  Stream stream() const override { return list_.stream(); }
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) override {
    return list_.move_into(targets, std::move(keeps));
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  TensorList list_{{}};
};

inline std::unique_ptr<TensorSource> parameters(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<ModuleParameters>(std::move(module));
}

}  // namespace bascule::inline v0::libtorch
