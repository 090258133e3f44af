// Finds and sets this program's flags, by reflection, for the command line, the environment and config files.
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

// A flag's name as people see it: "worker-threads" for worker_threads in the source.
std::string shown_name(std::string_view flag);

// All flags of the program by their shown names, without Abseil's own flags.
std::map<std::string, absl::CommandLineFlag*, std::less<>> own_flags();

// Finds a flag by `name`, with dashes or underscores. If there is none, returns INVALID_ARGUMENT, which names the
// nearest known flag.
absl::StatusOr<absl::CommandLineFlag*> find_flag(std::string_view name);

// Returns INVALID_ARGUMENT if the value does not have the flag's type.
absl::Status set_flag(absl::CommandLineFlag& flag, const std::string& value);

// Returns an example such as "--threads=8", with the flag's default or else a value that fits its type.
std::string example_of(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
