// What of a process's environment must be alike at all ranks of a communicator, and what must not be set at all. NCCL
// finds out late or never: ranks whose settings differ hang, or one of them fails with another's error.
//
// Threads: any; keeps no state. NCCL itself calls setenv() at its first communicator of the process, with what its
// configuration files say, so read_environment() belongs before that, as every getenv().
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/library.h>

namespace bascule::inline v0::nccl {

inline constexpr std::size_t kMaxEnvironmentBytes = 64 << 10;  // of to_bytes()

struct Environment {
  int version = 0;  // of the library; NCCL refuses ranks of different ones
  // By name, those of environment.cpp's list that are set and not empty: what changes how ranks talk. Interfaces,
  // adapters, hosts' names, timeouts and logs may differ and are not here.
  std::map<std::string, std::string> settings;

  friend bool operator==(const Environment&, const Environment&) = default;
};

// Of this process: its environment, then the file NCCL_CONF_FILE (where that is not set, .nccl.conf in the user's home
// folder), then /etc/nccl.conf; the first that sets a variable wins, as for NCCL. Blocks on those files. What an
// environment plugin of NCCL's sets is not seen. FAILED_PRECONDITION names each variable that must be unset, its value
// and where it was found, or a configuration file of more than 1 MiB. UNAVAILABLE: the library does not tell its
// version.
absl::StatusOr<Environment> read_environment(const Library& library);

// FAILED_PRECONDITION names each difference, with both values, and what to do. The names are those of the two processes
// for the text: "the sender", "worker a".
absl::Status check_same(const Environment& here, const Environment& there, std::string_view here_name,
                        std::string_view there_name);

// For the wire: CBOR, a map of `version` and `settings`.
std::string to_bytes(const Environment& environment);
// Any bytes are safe. INVALID_ARGUMENT: they are no environment, or more than kMaxEnvironmentBytes.
absl::StatusOr<Environment> parse_environment(std::string_view bytes);

}  // namespace bascule::inline v0::nccl
