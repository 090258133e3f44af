// Where flags come from besides the command line: config files, and the environment of programs that share them.
//
// A companion's flag is not an error here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

// Another program that shares config files and environment with this one.
struct Companion {
  std::string section;             // its object in a config file: "engine"
  std::vector<std::string> flags;  // all of them: "max-batch"
};

struct ProgramInfo {
  std::string name = {};                   // "bascule-engine"
  std::string summary = {};                // what it does, in a few lines; --help prints it above the flags
  std::string section = {};                // its own object in a config file: "train"
  std::vector<Companion> companions = {};  // if empty, it shares no config file and reads no environment
};

// The variable that names a config file.
inline constexpr const char* kConfigVariable = "BASCULE_CONFIG";

// "BASCULE_MAX_TOKENS" of "max-tokens".
std::string variable_of(std::string_view flag);

// Sets the flags that `file` holds for `program`. INVALID_ARGUMENT names the file and the flag: unknown to all programs
// (with the nearest), ill-typed, or in another program's object.
absl::Status apply_config_file(const std::string& file, const ProgramInfo& program);

// Sets the flags whose variables are set and not empty. Returns a warning for each BASCULE_… variable that nothing
// reads. INVALID_ARGUMENT names a variable whose value does not have its flag's type.
absl::StatusOr<std::vector<std::string>> apply_environment(const ProgramInfo& program);

}  // namespace bascule::inline v0
