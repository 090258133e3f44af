// The flags of this program, found by reflection: what the command line, the environment and config files set.
//
// Threads: none may read flags while they are set.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/flags/commandlineflag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

// worker_threads in the source, worker-threads to people.
std::string shown_name(std::string_view flag);

// By shown name; without the flags that Abseil's own parts define.
std::map<std::string, absl::CommandLineFlag*, std::less<>> own_flags();

// With dashes or underscores. INVALID_ARGUMENT names the nearest.
absl::StatusOr<absl::CommandLineFlag*> find_flag(std::string_view name);

// INVALID_ARGUMENT: the value is none of its type.
absl::Status set_flag(absl::CommandLineFlag& flag, const std::string& value);

// "--threads=8": its default, or a word of its type.
std::string example_of(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
