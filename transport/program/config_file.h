// Reads the file of --config, JSON or YAML: one object that maps flag names to values, and programs' names to objects
// of flags.
#pragma once

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/statusor.h"

namespace bascule::inline v0 {

struct ConfigEntry {
  std::string name;
  std::string json;  // the value as JSON text
};

// Returns the entries of `file`, which is YAML if its name ends in .yaml or .yml, else JSON. Returns an error, which
// names the file, if it is missing, larger than 1 MiB, malformed (the text says where) or not an object.
absl::StatusOr<std::vector<ConfigEntry>> read_config_file(const std::string& file);

// Returns the entries of a section, which is an object of flags, such as "engine" in {"model": "m", "engine":
// {"max-batch": 64}}; or INVALID_ARGUMENT if `section` is not an object.
absl::StatusOr<std::vector<ConfigEntry>> entries_of(const ConfigEntry& section);

// Returns the text from which `flag` parses this value, or INVALID_ARGUMENT if the JSON type does not fit the flag's. A
// number may not be given as a string, nor a bool as 1.
absl::StatusOr<std::string> flag_value(const absl::CommandLineFlag& flag, const ConfigEntry& entry);

// The flag's type, for people: "INTEGER", "NUMBER", "BOOL", "SIZE", "DURATION", "LIST" or "TEXT".
const char* type_name(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
