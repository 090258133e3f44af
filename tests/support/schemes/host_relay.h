// A relay on a CPU: slots and receive buffers are memfds, and a thread copies instead of a GPU's copy engine. With it
// everything in a relay except the GPU's copies is tested without a GPU, also between real processes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include <bascule/schemes/relay/relay_memory.h>
#include <bascule/transport/scheme.h>

namespace bascule::test {

inline constexpr std::uint64_t kRelayPiece = std::uint64_t{128} << 10;  // two tiles: small models have many pieces

// Each of a queue's calls first runs its hook, on the thread that copies. If the hook returns an error, so does the
// call.
struct HostQueueHooks {
  std::function<absl::Status()> before_copy{};             // before each piece
  std::function<void(std::span<std::byte>)> after_copy{};  // of these bytes
  std::function<absl::Status()> before_finish{};
  std::function<absl::Status()> before_settle{};
  std::function<absl::Status()> before_window{};  // of host memory
  std::function<absl::Status()> before_copy_to_host{};
};
// The memory that a relay receiver copies to. Workers of one place share buffers.
relay::RelayMemory host_relay_memory(HostQueueHooks hooks = {}, std::string place = "host");

// The schemes of a relay over memfds. They do not have relay=off. Over host-relay each worker has a place for itself;
// over shared-relay all workers have one, so only the first of them copies.
const Scheme& host_relay_scheme();
const Scheme& shared_relay_scheme();
Scheme host_relay_scheme(HostQueueHooks hooks);  // of workers whose queues have these hooks

}  // namespace bascule::test
