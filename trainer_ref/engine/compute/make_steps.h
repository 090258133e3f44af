// Picks how steps are computed, by the build, the model and the device.
#pragma once

#include <memory>

#include <bascule/trainer_ref/engine/compute/steps.h>
#include <bascule/trainer_ref/model/config.h>

namespace bascule::ref {

// Whether make_steps() picks our kernels, which read joined weights: on a GPU, in a build with CUDA, for models whose
// shapes they support.
bool takes_kernels(const ModelConfig& config, const Place& place);

// Throws LibTorch's exception if there is not enough memory.
std::unique_ptr<Steps> make_steps(const ModelConfig& config, StepsOptions options);

}  // namespace bascule::ref
