// The decoder's forward pass on a GPU, over the paged cache: what Decoder::forward() computes, with nine launches or so
// a layer. Matrix products are LibTorch's, the rest is trainer_ref/ops.
//
// Shapes as in model/decoder_weights.h; N tokens of a batch.
#pragma once

#include <ATen/ATen.h>

#include <bascule/trainer_ref/engine/compute/gpu_cache.h>
#include <bascule/trainer_ref/engine/compute/place.h>
#include <bascule/trainer_ref/engine/compute/step_numbers.h>
#include <bascule/trainer_ref/model/decoder_weights.h>

namespace bascule::ref {

// Whether the kernels take a model of these shapes.
bool fits_paged_forward(const ModelConfig& config);

class PagedForward {
 public:
  PagedForward(const ModelConfig& config, const Place& place);

  // Hidden states behind the last norm, [N, C], of the batch that `numbers` hold, whose keys and values go to `cache`.
  // Without waiting. Exceptions are LibTorch's, or std::runtime_error of CUDA.
  at::Tensor operator()(const DecoderWeights& weights, const StepNumbers& numbers, const GpuCache& cache) const;

 private:
  at::Tensor attend(const at::Tensor& query, const ops::PagedCache& cache, const StepNumbers& numbers) const;

  const ModelConfig config_;
  const Stream stream_;
  int processors_ = 1;
};

}  // namespace bascule::ref
