// How a worker gets right a version that came wrong. Both functions block, and return the digest of the whole version
// as it is then.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include <bascule/transport/source.h>

namespace bascule::inline v0::relay {

// Reads ranges of the version again, from the trainer's slot. UNAVAILABLE: the slot no longer has the version.
absl::StatusOr<Digest> mend(Source& trainer, DeviceQueue& queue, const Publication& publication,
                            std::span<std::byte> bytes, std::span<const ByteRange> ranges, Deadline deadline);

// For a copy that this worker shares. The engine that made the copy finds the same wrong bytes, and mends them; this
// waits until the version has the publication's digest, for two seconds at most.
absl::StatusOr<Digest> await_mending(DeviceQueue& queue, const Publication& publication,
                                     std::span<const std::byte> bytes, Deadline deadline);

}  // namespace bascule::inline v0::relay
