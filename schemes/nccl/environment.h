// The environment variables that must be equal at all ranks of a communicator, and those that must not be set. NCCL
// finds a difference late or never: the ranks hang, or one fails with another's error.
//
// Any thread may call these; they keep no state. When a process makes its first communicator, NCCL calls setenv() with
// the settings of its configuration files. Call read_environment(), like any getenv(), before that.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/library.h>

namespace bascule::inline v0::nccl {

inline constexpr std::size_t kMaxEnvironmentBytes = 64 << 10;  // the longest result of to_bytes()

struct Environment {
  int version = 0;  // of the library; NCCL refuses ranks of different versions
  // By name, the variables of environment.cpp's list that are set and not empty: they change how ranks communicate.
  // Interfaces, adapters, host names, timeouts and logs may differ and are not here.
  std::map<std::string, std::string> settings;

  friend bool operator==(const Environment&, const Environment&) = default;
};

// Reads this process's environment, then the file NCCL_CONF_FILE (if that is not set, .nccl.conf in the user's home
// folder), then /etc/nccl.conf. As in NCCL, the first that sets a variable wins. Blocks on those files. It does not see
// variables set by an NCCL environment plugin. FAILED_PRECONDITION names each variable that must be unset, with its
// value and source, or a configuration file of more than 1 MiB. Returns UNAVAILABLE if the library reports no version.
absl::StatusOr<Environment> read_environment(const Library& library);

// Returns OK if both are equal; FAILED_PRECONDITION names each difference with both values, and what to do. The text
// calls the two processes `here_name` and `there_name`: "the sender", "worker a".
absl::Status check_same(const Environment& here, const Environment& there, std::string_view here_name,
                        std::string_view there_name);

// Encodes it for the wire, as a CBOR map of `version` and `settings`.
std::string to_bytes(const Environment& environment);
// Takes any bytes. Returns INVALID_ARGUMENT if they are not an environment, or more than kMaxEnvironmentBytes.
absl::StatusOr<Environment> parse_environment(std::string_view bytes);

}  // namespace bascule::inline v0::nccl
