// For builds without CUDA.
#include <c10/util/Exception.h>

#include <bascule/trainer_ref/model/fused_scores.h>

namespace bascule::ref {

bool has_fused_scores(at::DeviceType) { return false; }
void score_chunk(const ChunkScores&, const at::Tensor&, const at::Tensor&) { TORCH_CHECK(false, "built without CUDA"); }
void differentiate_chunk(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  TORCH_CHECK(false, "built without CUDA");
}

}  // namespace bascule::ref
