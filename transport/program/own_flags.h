// This program's flags, found by reflection, which the command line, the environment and config files set.
//
// Threads: none may read flags while they are being set.
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

// By shown name, without Abseil's own flags.
std::map<std::string, absl::CommandLineFlag*, std::less<>> own_flags();

// `name` has dashes or underscores. INVALID_ARGUMENT names the nearest known flag.
absl::StatusOr<absl::CommandLineFlag*> find_flag(std::string_view name);

// INVALID_ARGUMENT: the value does not have the flag's type.
absl::Status set_flag(absl::CommandLineFlag& flag, const std::string& value);

// "--threads=8": with the default, or the name of its type.
std::string example_of(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
