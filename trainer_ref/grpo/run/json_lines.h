// Files of JSON lines that grow during a run: metrics.jsonl and completions.jsonl.
//
// Threads: one per file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::ref {

// Returns the lines of a JSON-lines file. INVALID_ARGUMENT names a line that is not JSON. A last line without a newline
// is ignored: the run was killed while it wrote this line.
absl::StatusOr<std::vector<nlohmann::json>> read_json_lines(const std::filesystem::path& file);

// Appends a line and flushes it. Readers see whole lines; a crash loses at most the last one.
absl::Status append_json_line(const std::filesystem::path& file, const nlohmann::json& line);

// Removes the lines whose "step" is greater than `last_step`, which a resumed run writes again.
absl::Status keep_steps(const std::filesystem::path& file, std::int64_t last_step);

}  // namespace bascule::ref
