// An endpoint: one string that chooses the scheme, the place and the options, the same on both ends.
//
//   shm:///run/user/1000/grpo?wire_dtype=bf16&digest=on&timeout=30s
//   scheme  folder              options
//
// The control connection is a Unix socket at <folder>/control.sock. (A host and port in place of the folder, for a
// control connection over TCP, are refused by name in this version.)
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"

namespace bascule {

enum class DigestMode {
  kOff,     // none is made
  kOn,      // the sender makes it while it packs; a worker that copies checks it
  kAlways,  // a worker that reads in place makes the pass as well
};
inline constexpr std::array<std::string_view, 3> kDigestModes = {"off", "on", "always"};  // their names, in order

struct Endpoint {
  std::string scheme;            // "shm"
  std::filesystem::path folder;  // absolute

  int slots = 2;                                    // slots=N
  std::optional<DType> wire_dtype;                  // wire_dtype=f32|bf16|f16: floating-point tensors travel as this
  DigestMode digest = DigestMode::kOn;              // digest=off|on|always
  absl::Duration timeout = absl::Seconds(30);       // timeout=: of one send, up to its commit decision
  absl::Duration flip_timeout = absl::Seconds(5);   // flip_timeout=: from the decision to a worker's ack
  absl::Duration heartbeat = absl::Seconds(1);      // heartbeat=: how often each side says that it lives
  absl::Duration suspect_after = absl::Seconds(5);  // suspect_after=: silence after which a peer is given up

  std::filesystem::path control_socket() const { return folder / "control.sock"; }
  std::filesystem::path lock_file() const { return folder / "sender.lock"; }

  // INVALID_ARGUMENT: malformed, an unknown option (with the nearest known one), a value out of range, a folder too
  // long for a socket's address. UNIMPLEMENTED: an option or value that a later version will know, by name. Whether the
  // scheme exists is the registry's to say.
  static absl::StatusOr<Endpoint> parse(std::string_view url);
};

}  // namespace bascule
