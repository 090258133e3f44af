// The special tokens that a checkpoint's tokenizer names, such as the token that ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

// The special tokens, each as an object of tokenizer.json's added_tokens without its id: `content`, `special` and
// `normalized`, and `lstrip`, `rstrip` and `single_word` if the files have them.
struct SpecialTokens {
  // By name ("eos_token"), in the order in which transformers adds them to a tokenizer that lacks them.
  std::vector<std::pair<std::string, nlohmann::json>> named;
  std::vector<nlohmann::json> unnamed;  // extra_special_tokens, or additional_special_tokens
};

// As in transformers, the class of a tokenizer has defaults, tokenizer_config.json replaces them, and
// special_tokens_map.json replaces both unless tokenizer_config.json has added_tokens_decoder. The class depends on
// tokenizer_config.json and config.json. Missing files name no token. Returns INVALID_ARGUMENT if a file is malformed.
absl::StatusOr<SpecialTokens> read_all_special_tokens(const std::filesystem::path& folder);

// Returns the texts of those that have names.
absl::StatusOr<std::map<std::string, std::string>> read_special_tokens(const std::filesystem::path& folder);

// Returns the id of the tokenizer's eos_token; nullopt if the files name none, or lack its id.
std::optional<std::int64_t> read_end_token(const std::filesystem::path& folder);

}  // namespace bascule::ref
