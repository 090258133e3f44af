// make_steps() for builds without CUDA.
#include <bascule/trainer_ref/engine/compute/make_steps.h>
#include <bascule/trainer_ref/engine/compute/plain_steps.h>

namespace bascule::ref {

bool takes_kernels(const ModelConfig& /*config*/, const Place& /*place*/) { return false; }

std::unique_ptr<Steps> make_steps(const ModelConfig& config, StepsOptions options) {
  return std::make_unique<PlainSteps>(config, options);
}

}  // namespace bascule::ref
