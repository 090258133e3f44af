// report.html: one page about a run, which loads no other file.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace bascule::ref {

// Reads run.json, metrics.jsonl and completions.jsonl of `out` and writes report.html beside them.
absl::Status write_report(const std::filesystem::path& out);

}  // namespace bascule::ref
