// Picks how steps are computed, by the build, the model and the device.
#pragma once

#include <memory>

#include <bascule/trainer_ref/engine/compute/steps.h>
#include <bascule/trainer_ref/model/config.h>

namespace bascule::ref {

// Whether make_steps() takes our kernels, which read joined weights: on a GPU, in a build with CUDA, for models whose
// shapes they know.
bool takes_kernels(const ModelConfig& config, const Place& place);

// Exceptions are LibTorch's: there is not the memory.
std::unique_ptr<Steps> make_steps(const ModelConfig& config, StepsOptions options);

}  // namespace bascule::ref
