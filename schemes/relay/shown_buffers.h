// ShownBuffers: a worker's receive buffers. Other engines see those that are kept: their memory, and on a progress page
// which version each holds and how far it has come. They copy from these buffers, or read them in place.
//
// Not thread-safe, except advance() and show_digest().
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/schemes/deliveries/receive_buffers.h>
#include <bascule/schemes/relay/progress_page.h>
#include <bascule/schemes/relay/relay_memory.h>

namespace bascule::inline v0::relay {

class ShownBuffers {
 public:
  using Buffer = ReceiveBuffers::Buffer;

  // For versions of `bytes` bytes. `memory` must outlive this object.
  absl::Status open(const RelayMemory& memory, std::uint64_t bytes);
  // Adds a buffer that is kept and shown.
  void show(ShownMemory made);
  std::size_t count() const { return shown_.size(); }  // of those
  // Ends that: no buffer is kept or shown. What other engines read stays, as they have mapped it.
  void hide();
  // The `buffers` message, and copies of its descriptors: none if the process is out of them.
  RelayMessage message();
  std::vector<ProcessFd> descriptors() const;

  ReceiveBuffers& all() { return buffers_; }
  const ReceiveBuffers& all() const { return buffers_; }

  // Returns a buffer for a version to be copied, and shows it with 0 bytes if it is kept. Skips those that other
  // engines read: from which they copy the versions `spared`, or on which they have leases.
  absl::StatusOr<Buffer*> begin(Version version, std::span<const Version> spared);
  // Whether begin() would return a buffer that is kept, were it not for leases. Not for those that were `stuck` before.
  bool waits_for_leases(std::span<const Version> spared);
  // Waiting for them was in vain.
  void stuck(std::span<const Version> spared);
  void advance(const Buffer& buffer, std::uint64_t bytes_done);
  void show_digest(const Buffer& buffer, const std::optional<Digest>& digest);
  // The version in that buffer does not come, or is not right.
  void give_up(Buffer& buffer, bool still_written);

 private:
  bool is_leased(const Buffer& buffer);
  // The versions of free buffers that only leases keep from being used; none if one can be used.
  std::vector<Version> leased(std::span<const Version> spared);

  RelayMessage message_{.kind = RelayMessage::Kind::kBuffers};
  ReceiveBuffers buffers_;
  std::vector<ProcessFd> shown_;
  std::optional<ProgressPage> progress_;
  std::vector<Version> stuck_;  // whose leases did not end in time
};

}  // namespace bascule::inline v0::relay
