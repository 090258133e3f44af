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

// The entries of `file`. Errors name the file: missing, larger than 1 MiB, no JSON (with the place), no
// object.
absl::StatusOr<std::vector<ConfigEntry>> read_config_file(const std::string& file);

// The entries of an entry that is an object of flags, as "engine" in {"model": "m", "engine": {"max-batch": 64}}.
// INVALID_ARGUMENT: it is no object.
absl::StatusOr<std::vector<ConfigEntry>> entries_of(const ConfigEntry& section);

// The text that `flag` parses for this value. INVALID_ARGUMENT where the JSON type does not fit the flag's: a
// string is no number here, nor 1 a bool.
absl::StatusOr<std::string> flag_value(const absl::CommandLineFlag& flag, const ConfigEntry& entry);

// "INTEGER", "NUMBER", "BOOL", "SIZE", "DURATION", "LIST" or "TEXT".
const char* type_name(const absl::CommandLineFlag& flag);

}  // namespace bascule::inline v0
