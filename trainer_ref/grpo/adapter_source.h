// What a policy with an adapter sends. Both sources read the policy's own tensors at each send, without a copy.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/model/adapter.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

// The adapter alone, by PEFT's names. Each B is multiplied by its module's scale while it is packed, so that an engine
// computes with a scale of 1 (describe_adapter()).
std::unique_ptr<TensorSource> adapter_source(const Adapter& adapter);

// `weights`, the base model's tensors by their names, each adapted one as W + scale · B A. The sum is made in F32 while
// it is packed, and rounded once (kernels/arithmetic.h), always from the untouched W.
std::unique_ptr<TensorSource> merged_source(std::vector<std::pair<std::string, at::Tensor>> weights,
                                            const Adapter& adapter);

}  // namespace bascule::ref
