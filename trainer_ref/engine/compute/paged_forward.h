// The decoder's forward pass on a GPU, over the paged cache: computes what Decoder::forward() computes, with about nine
// launches per layer, and eight more in steps of adapters. Matrix products are LibTorch's, the rest is trainer_ref/ops.
//
// Shapes as in model/decoder_weights.h; N tokens of a batch.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>

#include <bascule/trainer_ref/engine/compute/cuda_event.h>
#include <bascule/trainer_ref/engine/compute/gpu_cache.h>
#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/compute/step_numbers.h>
#include <bascule/trainer_ref/model/decoder_weights.h>

namespace bascule::ref {

// Whether the kernels support a model of these shapes.
bool fits_paged_forward(const ModelConfig& config);

class PagedForward {
 public:
  PagedForward(const ModelConfig& config, const Place& place);

  // Returns hidden states after the last norm, [N, C], of the batch in `numbers`, whose keys and values go to `cache`.
  // Does not wait. Throws LibTorch's exceptions, or std::runtime_error for CUDA's.
  at::Tensor operator()(const DecoderWeights& weights, const StepNumbers& numbers, const GpuCache& cache) const;

 private:
  // What the step's adapters add to a product; undefined if the step has none.
  struct Update {
    at::Tensor low, sum;  // ops/low_rank.h; the sum is [N, out]
  };
  // Begins the update of the modules of `layer`, starting with `first`, which read `x`; `out` are the rows of each. It
  // is computed on another stream, beside the product that comes next. x must not change before end_update().
  Update begin_update(const at::Tensor& x, const StepNumbers& numbers, std::int64_t layer, LayerModule first,
                      std::initializer_list<std::int64_t> out) const;
  // Returns the update for the kernel that reads the product, or null. It must outlive that kernel's launch.
  const void* end_update(const Update& update) const;
  at::Tensor attend(const at::Tensor& query, const ops::PagedCache& cache, const StepNumbers& numbers) const;

  const ModelConfig config_;
  const Stream stream_;
  const c10::Stream beside_;
  CudaEvent begun_, ended_;
  int processors_ = 1;
};

}  // namespace bascule::ref
