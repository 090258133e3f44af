// Added tokens that tokenizer.json lacks: transformers reads them from other files of a checkpoint.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include <bascule/trainer_ref/text/vocabulary.h>

namespace bascule::ref {

// Completes `added_tokens` of tokenizer.json as transformers does: first with added_tokens_decoder of
// tokenizer_config.json, or without that key with added_tokens.json, in the order of their ids; then with special
// tokens that tokenizer_config.json or special_tokens_map.json names. Known tokens get the properties of
// added_tokens_decoder, and are special if they are named. A list that is malformed is left as it is, because
// AddedTokens::read() refuses it. INVALID_ARGUMENT names a malformed file.
absl::Status add_further_tokens(const std::filesystem::path& folder, const nlohmann::json& tokenizer_config,
                                const Vocabulary& vocabulary, nlohmann::json& added_tokens);

}  // namespace bascule::ref
