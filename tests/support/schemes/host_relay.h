// A relay on a CPU: slots and receive buffers are memfds, and a thread copies where a GPU's copy engine would. With it
// all of a relay but its copies runs without a GPU, over real processes too.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <bascule/schemes/relay/relay_memory.h>
#include <bascule/transport/scheme.h>

namespace bascule::test {

inline constexpr std::uint64_t kRelayPiece = std::uint64_t{128} << 10;  // two tiles: many pieces even of small models

// What a queue of such a place does first, on the thread that copies; an error is what the call returns.
struct HostQueueHooks {
  std::function<absl::Status()> before_copy{};  // of each piece
  std::function<absl::Status()> before_finish{};
  std::function<absl::Status()> before_settle{};
  std::function<absl::Status()> before_window{};  // of the host's memory
  std::function<absl::Status()> before_copy_to_host{};
};
// The memory that a relay receiver copies to.
relay::RelayMemory host_relay_memory(HostQueueHooks hooks = {});

// The scheme of a relay over memfds, for endpoints of this name. relay=off is not one of its shapes.
const Scheme& host_relay_scheme();
inline bool is_host_relay(std::string_view endpoint) { return endpoint.starts_with("host-relay:"); }

}  // namespace bascule::test
