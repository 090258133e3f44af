// The file of --config: one JSON object from flag names to values, or to objects of them.
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

// The entries of `file`. Errors name the file: missing, larger than 1 MiB, not JSON (with the place), not an object.
absl::StatusOr<std::vector<ConfigEntry>> read_config_file(const std::string& file);

// The entries of an entry that is an object of flags, such as "engine" in {"model": "m", "engine": {"max-batch": 64}}.
// INVALID_ARGUMENT: it is not an object.
absl::StatusOr<std::vector<ConfigEntry>> entries_of(const ConfigEntry& section);

// The text from which `flag` parses this value. INVALID_ARGUMENT: the JSON type does not fit the flag's: a string is
// not a number here, and 1 is not a bool.
absl::StatusOr<std::string> flag_value(const absl::CommandLineFlag& flag, const ConfigEntry& entry);

// "INTEGER", "NUMBER", "BOOL", "SIZE", "DURATION", "LIST" or "TEXT".
const char* type_name(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
