#include <bascule/trainer_ref/model/random_weights.h>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace bascule::ref {

void draw_weights(const WeightMap& weights, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  for (const auto& [name, weight] : weights) {
    at::Tensor tensor = weight;
    if (tensor.dim() == 2) {
      tensor.normal_(0, 1 / std::sqrt(static_cast<double>(tensor.size(1))));
    } else {
      tensor.uniform_(0.5, 1.5);
    }
  }
}

}  // namespace bascule::ref
