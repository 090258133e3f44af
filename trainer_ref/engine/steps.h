// How steps are computed, one way or another, and the cache between them: by LibTorch's operations alone (PlainSteps),
// or by kernels of few launches on a GPU (GpuSteps). The engine's thread, with the place's stream current.
#pragma once

#include <memory>
#include <vector>

#include <bascule/trainer_ref/engine/runner.h>
#include <bascule/trainer_ref/engine/step.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

class Steps {
 public:
  virtual ~Steps() = default;
  // An output for each row. Logits that are no numbers give no samples, and scores without a rank. What LibTorch throws
  // passes through.
  virtual std::vector<RowOutput> run(const Step& step, const std::shared_ptr<const Decoder>& decoder) = 0;
  // Zeros, behind a step that failed: what is no number must not linger in the cache.
  virtual void clear() = 0;
  virtual GraphCounts graphs() const { return {}; }
};

}  // namespace bascule::ref
