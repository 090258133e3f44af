// Files of JSON lines that grow as a run goes on: metrics.jsonl and completions.jsonl.
//
// Threads: one a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::ref {

// The lines of a JSON-lines file. INVALID_ARGUMENT names a line that is none. A last line without a newline does not
// count: a run was killed while it wrote it.
absl::StatusOr<std::vector<nlohmann::json>> read_json_lines(const std::filesystem::path& file);

// Adds a line and flushes it: a reader sees whole lines, a crash costs at most the last.
absl::Status append_json_line(const std::filesystem::path& file, const nlohmann::json& line);

// Leaves the lines whose "step" is at most `last_step`: what a run that resumes behind it will not write again.
absl::Status keep_steps(const std::filesystem::path& file, std::int64_t last_step);

}  // namespace bascule::ref
