// Hugging Face checkpoint folders: config.json, model.safetensors (or shards with an index), tokenizer.json.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_ref/model/config.h"
#include "trainer_ref/model/decoder.h"

namespace bascule::ref {

// The weights of `folder`, converted to `dtype` (F32 or BF16). Errors name the file and the tensor: holes, overlaps, a
// header beyond the file, missing shards.
absl::StatusOr<Weights> read_weights(const std::filesystem::path& folder, const ModelConfig& config, DType dtype);

// Writes `folder` whole or not at all (a temporary folder beside it, renamed): config.json and the tokenizer's files
// are copied from `template_folder`, weights go to model.safetensors in `dtype`. Python's transformers loads it.
absl::Status write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& template_folder,
                              const Weights& weights, DType dtype);

}  // namespace bascule::ref
