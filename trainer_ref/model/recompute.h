// Gradient checkpointing (arXiv 1604.06174): only the input of a part of a model is kept, and the backward pass
// computes the part again. It trades a second forward pass for the memory of what lies between.
//
// Threads: as for LibTorch's autograd, which calls `part` again from the thread of the backward pass. Lifetime: `part`
// and what it holds are kept until the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace bascule::ref {

using ModelPart = std::function<at::Tensor(const at::Tensor& input)>;

// Returns part(input), with bit-identical gradients: random numbers that the part draws (dropout) are drawn again. The
// weights that `part` uses get their gradients from backward() if they are leaves; torch::autograd::grad() does not
// reach them. Without gradients (under at::NoGradGuard, or if the input needs none) it is a plain call.
at::Tensor recomputed(ModelPart part, const at::Tensor& input);

}  // namespace bascule::ref
