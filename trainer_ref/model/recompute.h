// Gradient checkpointing (arXiv 1604.06174): of a part of a model only its input is kept; the backward pass computes
// the part once more. It trades a second forward pass for the memory of what lies between.
//
// Threads: as LibTorch's autograd, which calls `part` again from the thread of the backward pass. Lifetime: `part` is
// kept until then, with what it holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace bascule::ref {

using ModelPart = std::function<at::Tensor(const at::Tensor& input)>;

// part(input), whose gradients are the same bits as without this. The weights that `part` uses get theirs where they
// are leaves, by backward(): a gradient asked for by torch::autograd::grad() does not reach them. Without gradients
// (at::NoGradGuard, an input that needs none) it is a plain call.
at::Tensor recomputed(ModelPart part, const at::Tensor& input);

}  // namespace bascule::ref
