// PEFT's folders: adapter_config.json and adapter_model.safetensors, as save_pretrained() writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/model/adapter.h>
#include <bascule/trainer_ref/model/checkpoint.h>

namespace bascule::ref {

inline constexpr const char* kAdapterFile = "adapter_model.safetensors";

// Reads an adapter of the model `config`, as float32. Blocks. Errors name the file, and are as in read_lora_config()
// and adapted_modules(); NOT_FOUND or FAILED_PRECONDITION say what the folder has instead, such as an adapter_model.bin
// or PEFT's subfolder of an adapter that is not called "default".
// INVALID_ARGUMENT if a module's rank is above `max_rank`, before any tensor is read. Config and tensors are of one
// adapter: if the files change meanwhile, they are read again, a few times.
absl::StatusOr<Adapter> read_adapter(const std::filesystem::path& folder, const ModelConfig& config,
                                     std::int64_t max_rank = std::numeric_limits<std::int64_t>::max());

// INVALID_ARGUMENT names the first module whose rank is above `most`.
absl::Status check_rank(std::span<const AdaptedModule> modules, std::int64_t most);

// Inode, size and time of each file of an adapter: another text means that they changed.
std::string stamp_of_adapter(const std::filesystem::path& folder);

// Whether `folder` has an adapter_config.json.
bool is_adapter_folder(const std::filesystem::path& folder);
// NOT_FOUND, with what is there instead, if it has none.
absl::Status check_adapter_folder(const std::filesystem::path& folder);

// Writes `folder`, which must not exist yet, whole or not at all, as write_checkpoint() does: the tensors in F32.
// Python's PEFT loads it.
absl::Status write_adapter(const std::filesystem::path& folder, const Adapter& adapter, const AddFiles& add_files = {});

}  // namespace bascule::ref
