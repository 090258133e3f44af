// Hugging Face checkpoint folders: config.json, model.safetensors (or shards with an index), and the
// tokenizer's files.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/config.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

// Reads the weights of `folder` into separate tensors, converted to `dtype` (F32 or BF16). Blocks. An error names the
// file and the tensor. It reports holes, overlaps, a header beyond the file, missing shards, or a surplus tensor in one
// of the model's parts. Other surplus tensors are left out, as transformers does, and `log` gets a line about them. If
// the head is tied and also in the file, it must equal the embedding. Returns NOT_FOUND only if the folder has no
// weights of any kind; if it has others, FAILED_PRECONDITION says how to convert them. `folder` may be the subfolder
// `newest` of a memmap endpoint's, with a config.json copied into it: the newest version is read, and its digest
// compared.
absl::StatusOr<WeightMap> read_weights(const std::filesystem::path& folder, const ModelConfig& config, DType dtype,
                                       const std::function<void(std::string_view)>& log = {});

// Reads the weights of `folder` like read_weights(), but into the `targets`, which have the model's names, shapes and
// one type, on any device. Besides these, one tensor at a time is in memory.
absl::Status read_weights_into(const WeightMap& targets, const std::filesystem::path& folder, const ModelConfig& config,
                               const std::function<void(std::string_view)>& log = {});

// The files that hold the weights of `folder`, each named once.
absl::StatusOr<std::vector<std::filesystem::path>> weight_files(const std::filesystem::path& folder);

// Adds a program's own files (an optimizer's state) to a checkpoint: called with the temporary folder.
using AddFiles = std::function<absl::Status(const std::filesystem::path& temporary_folder)>;

// Writes `folder`, which must not exist yet, whole or not at all: `write` fills a temporary folder beside it, which is
// made durable and renamed. Blocks until all is on the disk.
absl::Status write_folder(const std::filesystem::path& folder, const AddFiles& write);

// Writes `folder` like write_folder(). config.json (its dtype corrected) and the tokenizer's files come from
// `template_folder`, weights go to model.safetensors in `dtype`. Python's transformers loads it.
absl::Status write_checkpoint(const std::filesystem::path& folder, const std::filesystem::path& template_folder,
                              const WeightMap& weights, DType dtype, const AddFiles& add_files = {});

}  // namespace bascule::ref
