#include <bascule/trainer_ref/engine/compute/make_steps.h>

#include <bascule/trainer_ref/engine/compute/gpu_steps.h>
#include <bascule/trainer_ref/engine/compute/plain_steps.h>

namespace bascule::ref {

bool takes_kernels(const ModelConfig& config, const Place& place) {
  return place.device.is_cuda() && fits_paged_forward(config);
}

std::unique_ptr<Steps> make_steps(const ModelConfig& config, StepsOptions options) {
  if (takes_kernels(config, options.place)) return std::make_unique<GpuSteps>(config, std::move(options));
  return std::make_unique<PlainSteps>(config, options);
}

}  // namespace bascule::ref
