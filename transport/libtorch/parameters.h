// The parameters and buffers of a torch::nn::Module, by LibTorch's dotted names.
#pragma once

#include <torch/nn/module.h>

#include "transport/libtorch/tensors.h"

namespace bascule::libtorch {

// The module's tensors are read afresh at each send: one that was replaced (module->to(...)) is followed.
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

}  // namespace bascule::libtorch
