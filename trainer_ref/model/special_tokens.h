// The special tokens that a checkpoint's tokenizer names, such as the token that ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace bascule::ref {

// Returns the texts of the special tokens by name ("eos_token"). As in transformers, the class of a tokenizer has
// defaults, tokenizer_config.json replaces them, and special_tokens_map.json replaces both unless tokenizer_config.json
// has added_tokens_decoder. The class depends on tokenizer_config.json and config.json. Missing files name no token.
// Returns INVALID_ARGUMENT if a file is malformed.
absl::StatusOr<std::map<std::string, std::string>> read_special_tokens(const std::filesystem::path& folder);

// Returns the id of the tokenizer's eos_token; nullopt if the files name none, or lack its id.
std::optional<std::int64_t> read_end_token(const std::filesystem::path& folder);

}  // namespace bascule::ref
