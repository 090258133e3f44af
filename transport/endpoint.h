// An endpoint: one string, the same at both ends, that chooses the scheme, the place and the options.
//
//   shm:///run/user/1000/grpo?wire_dtype=bf16&digest=on&timeout=30s
//   scheme  folder              options
//
//   nccl://node1:29500?state=/var/tmp/grpo&token_file=/home/me/.grpo-token
//   scheme host  port  options
//
//   auto:///run/user/1000/grpo?listen=node1:29500      a folder, and TCP as well
//
// If the place is a folder, the control connection is a Unix socket, <folder>/control.sock. If it is a host (a name, an
// IPv4 address, or an IPv6 address in brackets) and a port, the connection is TCP, and both ends must know the same
// token (docs/guide/security.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/kernels/dtype.h>
#include <bascule/transport/host_port.h>
#include <bascule/transport/target.h>

namespace bascule::inline v0 {

enum class DigestMode {
  kOff,     // no digest
  kOn,      // the sender computes it while packing; a worker that copies checks it
  kAlways,  // a worker that reads in place also reads all bytes to check it
};
inline constexpr std::array<std::string_view, 3> kDigestModes = {"off", "on", "always"};  // their names, in order

inline constexpr int kMaxOfferedSlots = 12;  // the highest slots=N: a message's descriptors, less those for other uses

struct Endpoint {
  std::string scheme;      // "shm"
  std::string host;        // for a control connection over TCP, without brackets; empty: Unix socket
  std::uint16_t port = 0;  // for TCP; 0: Unix socket
  // Absolute. Holds the socket and the sender's state. Over TCP it holds only the state, and is given by state=; by
  // default it is $XDG_STATE_HOME/bascule/<host>_<port>, with ~/.local/state if that variable is not set, or empty if
  // there is no home either.
  std::filesystem::path folder;
  std::filesystem::path token_file;  // token_file=: the file with the token, in place of BASCULE_TOKEN; TCP only
  // listen=host:port, only with a folder: the address where the sender also accepts workers over TCP. A worker that is
  // given this URL uses the folder.
  std::optional<HostPort> listen;

  int slots = 2;  // slots=N; 1: a single copy, in the trainer's own parameters
  // spares=N: extra slots allowed while evicted workers still read old ones, each as large as the model; by default 2
  // in host memory, 1 on a device.
  std::optional<int> spares;
  std::optional<DType> wire_dtype;                  // wire_dtype=f32|bf16|f16: floating-point tensors travel as this
  DigestMode digest = DigestMode::kOn;              // digest=off|on|always
  bool commit_each = false;                         // commit=each|together: each worker flips as soon as it is prepared
  Apply apply = Apply::kCommit;                     // apply=commit|background: when a worker with targets copies
  absl::Duration timeout = absl::Seconds(30);       // timeout=: for one send, until the version is decided
  absl::Duration flip_timeout = absl::Seconds(5);   // flip_timeout=: from the decision to a worker's ack
  absl::Duration loan_timeout = absl::Seconds(30);  // loan_timeout=: with slots=1, from a loan to its publish or drop
  absl::Duration load_timeout = absl::Minutes(2);   // load_timeout=: for an engine that loads a version by itself
  absl::Duration heartbeat = absl::Seconds(1);      // heartbeat=: how often each end sends a heartbeat
  absl::Duration suspect_after = absl::Seconds(5);  // suspect_after=: silence after which a peer is given up

  // The scheme's own options, by name (transport/scheme_option.h); scheme_for() checks them.
  std::map<std::string, std::string, std::less<>> scheme_options;

  // Not part of the string: the sender has one slot, for one version that never changes (SenderOptions::held).
  bool held = false;
  // Not part of the string: true if this process only looks at slots, which senders may write meanwhile
  // (receiver/status.h).
  bool looks_only = false;
  // Not part of the string: how many versions a worker has memory for, if it has its own (Scheme::to_own_memory).
  std::size_t versions_kept = 2;
  // Not part of the string: the device that this receiver reads on (ReceiverOptions::device). kHost means the device
  // of the slots.
  int device = -1;

  // How long a receiver's commit() waits at most while a single copy is written. An honest sender takes less: `timeout`
  // until all workers have yielded, `loan_timeout` to write, and `timeout` to make the digest and decide.
  absl::Duration writer_timeout() const { return 2 * timeout + loan_timeout; }

  // The trainer's parameters themselves are the slot.
  bool single_copy() const { return slots == 1 && !held; }
  bool over_tcp() const { return !host.empty(); }
  std::string place() const;               // for texts: the folder, or "node1:29500", "[::1]:29500"
  std::optional<Endpoint> beside() const;  // the same endpoint over TCP at listen=
  std::string own_folder() const;          // a URL with a folder below this one, for advice: "shm:///tmp/run"
  std::filesystem::path control_socket() const { return folder / "control.sock"; }
  std::filesystem::path lock_file() const { return folder / "sender.lock"; }

  // Returns INVALID_ARGUMENT if the URL is malformed, a value is out of range, the folder's path is too long,
  // or an option makes no sense for this kind of place. Whether the scheme exists and knows the options that
  // are not common is checked later, by the registry's scheme_for().
  static absl::StatusOr<Endpoint> parse(std::string_view url);
};

}  // namespace bascule::inline v0
