// Milestones: tracks how far a stream has got with work that was queued in pieces. Events are made when needed and
// reused. One thread at a time, as for UniqueEvent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/cuda/stream.h>

namespace bascule::inline v0::cuda {

// Once the device has passed the event, `end` bytes are done.
struct Milestone {
  UniqueEvent event;
  std::uint64_t end = 0;
};

class Milestones {
 public:
  void restart() { given_ = met_ = 0; }
  // Records that `end` bytes are done once the device passes the work queued on `stream` so far. `end` only grows,
  // until restart().
  absl::Status record(std::uint64_t end, const UniqueStream& stream);
  // Returns the `end` of the last record() that the device has passed, or 0. Does not block.
  absl::StatusOr<std::uint64_t> passed();
  // Those recorded since restart(), by `end`. Valid until the next record().
  std::span<const Milestone> recorded() const { return std::span(milestones_).first(given_); }

 private:
  std::vector<Milestone> milestones_;
  std::size_t given_ = 0, met_ = 0;
};

}  // namespace bascule::inline v0::cuda
