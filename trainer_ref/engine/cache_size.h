// The size of the key/value cache, from --cache-bytes or --gpu-memory-utilization, and --max-model-len.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/config.h>
#include <bascule/transport/tensor.h>

namespace bascule::ref {

struct CacheSize {
  std::int64_t blocks = 0, max_model_len = 0;
};

// What depends on no model and no device.
absl::Status check_cache_flags();

// `weight_bytes`: of the engine's own copy on `device`; 0 if it reads a trainer's or a base's there. INVALID_ARGUMENT
// names the flag, and what one sequence needs.
absl::StatusOr<CacheSize> cache_size(const ModelConfig& config, DType dtype, c10::Device device,
                                     std::int64_t weight_bytes);

}  // namespace bascule::ref
