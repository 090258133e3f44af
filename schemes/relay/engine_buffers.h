// EngineBuffers: another engine's receive buffers, from which a worker copies versions or, on that engine's device,
// reads them in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/schemes/relay/progress_page.h>
#include <bascule/schemes/relay/relay_memory.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/source.h>

namespace bascule::inline v0::relay {

class EngineBuffers final : public Source {
 public:
  // Maps the engine's progress page, then its buffers. May take milliseconds.
  static std::shared_ptr<EngineBuffers> make(const RelayMemory& here, const RelayMessage& message,
                                             std::vector<UniqueFd> descriptors);

  absl::StatusOr<std::optional<std::uint64_t>> available(const Publication& publication) override;
  absl::Status read(const Publication& publication, const ByteRange& range, const Landing& into) override;

  // A buffer to read in place. The engine does not write it until the lease is closed.
  struct Shared {
    std::shared_ptr<std::byte> memory;  // keeps it mapped; it is mapped read-only
    ProcessFd lease;
  };
  // Leases the buffer of a version that available() has found. Returns nullopt if it no longer has that version.
  absl::StatusOr<std::optional<Shared>> share(const Publication& publication);
  // Waits, for 50 ms at most, until the engine has digested its copy. Returns nullopt if it shows no digest by then.
  std::optional<Digest> await_digest(const Publication& publication, Deadline deadline) const;
  // What available() found last.
  const ProgressView::Progress& found() const { return found_; }

 private:
  absl::Status import(const RelayMemory& here, const RelayMessage& message, std::vector<UniqueFd> descriptors);

  absl::Status imported_;
  std::optional<ProgressView> progress_;
  std::vector<SourceMemory> buffers_;
  ProgressView::Progress found_;
};

}  // namespace bascule::inline v0::relay
