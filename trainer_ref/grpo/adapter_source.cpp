#include <bascule/trainer_ref/grpo/adapter_source.h>

#include <map>
#include <span>

#include "absl/status/statusor.h"
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Tensors some of which are multiplied by a number.
class ScaledTensors final : public TensorSource {
 public:
  ScaledTensors(NamedTensors tensors, std::vector<float> scales)
      : tensors_(libtorch::tensors(std::move(tensors))), scales_(std::move(scales)) {}

  absl::StatusOr<std::span<const TensorView>> views() override {
    BASCULE_ASSIGN(const std::span<const TensorView> views, tensors_->views());
    views_.assign(views.begin(), views.end());
    for (std::size_t i = 0; i < views_.size(); ++i) views_[i].scale = scales_[i];
    return std::span<const TensorView>(views_);
  }
  Stream stream() const override { return tensors_->stream(); }

 private:
  std::unique_ptr<TensorSource> tensors_;
  std::vector<float> scales_;
  std::vector<TensorView> views_;
};

// Tensors to some of which a product is added.
class MergedTensors final : public TensorSource {
 public:
  struct Product {
    std::size_t tensor = 0;
    float scale = 1;
  };
  // `factors`: b and a of each product, in their order.
  MergedTensors(NamedTensors tensors, NamedTensors factors, const std::vector<Product>& products)
      : tensors_(libtorch::tensors(std::move(tensors))),
        factors_(libtorch::tensors(std::move(factors))),
        products_(products),
        deltas_(products.size()) {}

  absl::StatusOr<std::span<const TensorView>> views() override {
    BASCULE_ASSIGN(const std::span<const TensorView> views, tensors_->views());
    BASCULE_ASSIGN(const std::span<const TensorView> factors, factors_->views());
    views_.assign(views.begin(), views.end());
    for (std::size_t i = 0; i < products_.size(); ++i) {
      deltas_[i] = {.b = factors[2 * i], .a = factors[2 * i + 1], .scale = products_[i].scale};
      views_[products_[i].tensor].delta = &deltas_[i];
    }
    return std::span<const TensorView>(views_);
  }
  Stream stream() const override { return tensors_->stream(); }

 private:
  std::unique_ptr<TensorSource> tensors_, factors_;
  std::vector<Product> products_;
  std::vector<LowRankView> deltas_;
  std::vector<TensorView> views_;
};

}  // namespace

std::unique_ptr<TensorSource> adapter_source(const Adapter& adapter) {
  NamedTensors tensors;
  std::vector<float> scales;
  for (const auto& [name, factors] : adapter.modules) {
    tensors.emplace_back(lora_a_name(name), factors.a);
    tensors.emplace_back(lora_b_name(name), factors.b);
    scales.insert(scales.end(), {1, static_cast<float>(factors.scale)});
  }
  return std::make_unique<ScaledTensors>(std::move(tensors), std::move(scales));
}

std::unique_ptr<TensorSource> merged_source(NamedTensors weights, const Adapter& adapter) {
  NamedTensors factors;
  std::vector<MergedTensors::Product> products;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string& name = weights[i].first;
    const auto found = adapter.modules.find(name.substr(0, name.rfind(".weight")));
    if (found == adapter.modules.end() || !name.ends_with(".weight")) continue;
    factors.emplace_back(lora_b_name(found->first), found->second.b);
    factors.emplace_back(lora_a_name(found->first), found->second.a);
    products.push_back({.tensor = i, .scale = static_cast<float>(found->second.scale)});
  }
  return std::make_unique<MergedTensors>(std::move(weights), std::move(factors), products);
}

}  // namespace bascule::ref
