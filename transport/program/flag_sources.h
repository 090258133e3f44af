// Where flags come from besides the command line: config files and environment variables. Several programs may share
// both, so each program accepts its companions' flags and ignores them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/program/config_file.h>

namespace bascule::inline v0 {

// Another program that shares config files and environment with this one.
struct Companion {
  std::string section;             // the name of its object in a config file: "engine"
  std::vector<std::string> flags;  // all of them: "max-batch"
};

// Rewrites the entries of a config file, which may have other programs' words, into entries of flags and sections. Its
// errors name the words.
using Translate = absl::StatusOr<std::vector<ConfigEntry>> (*)(std::vector<ConfigEntry> entries);

struct ProgramInfo {
  std::string name = {};                   // "bascule-engine"
  std::string summary = {};                // what it does, in a few lines; --help prints it above the flags
  std::string section = {};                // the name of its object in a config file: "train"
  std::vector<Companion> companions = {};  // if empty, the program shares no config file and reads no environment
  Translate translate = nullptr;           // of config files; null: they have flags only
};

// The environment variable that names a config file.
inline constexpr const char* kConfigVariable = "BASCULE_CONFIG";

// The environment variable of a flag: "BASCULE_MAX_TOKENS" for "max-tokens".
std::string variable_of(std::string_view flag);

// Sets the flags that `file` holds for `program`. Returns INVALID_ARGUMENT, naming the file and the flag, if a flag is
// unknown to all programs (the text suggests the nearest), ill-typed, or in another program's object.
absl::Status apply_config_file(const std::string& file, const ProgramInfo& program);

// Sets the flags whose variables are set and not empty. Returns a warning for each BASCULE_… variable that nothing
// reads. Returns INVALID_ARGUMENT, naming the variable, if a value does not have its flag's type.
absl::StatusOr<std::vector<std::string>> apply_environment(const ProgramInfo& program);

}  // namespace bascule::inline v0
