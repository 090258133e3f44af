// EngineBuffers: another engine's receive buffers, from which a worker copies versions.
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

 private:
  absl::Status import(const RelayMemory& here, const RelayMessage& message, std::vector<UniqueFd> descriptors);

  absl::Status imported_;
  std::optional<ProgressView> progress_;
  std::vector<SourceMemory> buffers_;
  std::size_t found_ = 0;  // the buffer of the version that available() found last
};

}  // namespace bascule::inline v0::relay
