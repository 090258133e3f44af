// Shared by the readers of tokenizer.json's parts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::ref {

// Returns UNIMPLEMENTED for `what`, which is well-formed but not supported.
absl::Status unread(std::string_view what);

// Returns the "type" of a part, such as a normalizer; `kind` names it in errors. INVALID_ARGUMENT if there is none.
absl::StatusOr<std::string> type_of(const nlohmann::json& part, std::string_view kind);

// Returns the list of parts under `key` of a Sequence.
absl::StatusOr<const nlohmann::json*> list_of(const nlohmann::json& part, const char* key);

// Returns `text` with its length before it, so that several in a row can be read in one way only. For fingerprints.
std::string measured(std::string_view text);

}  // namespace bascule::ref
