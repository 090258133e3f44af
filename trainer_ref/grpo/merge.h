// --merge: a checkpoint of the base model with an adapter added to it.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include <bascule/trainer_ref/model/adapter.h>

namespace bascule::ref {

// W + scale · B A, in `dtype`: summed in F32 from W in F32, and rounded once, bit by bit as --lora-sync=merged sends
// it. The factors are F32. Blocks.
at::Tensor merged_weight(const at::Tensor& weight, const LowRank& factors, DType dtype);

// Writes the checkpoint `out`, which must not exist: the weights of `model` with the adapter in `adapter` added, in
// `dtype` (F32 or BF16). Config and tokenizer are the model's. INVALID_ARGUMENT names the flag of a wrong folder.
absl::Status merge_adapter(const std::filesystem::path& adapter, const std::filesystem::path& model,
                           const std::filesystem::path& out, DType dtype);

}  // namespace bascule::ref
