// Milestones: how far a stream has come with what it was given in pieces. Its events are made when they are first
// needed and used again. As UniqueEvent: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/cuda/stream.h>

namespace bascule::inline v0::cuda {

class Milestones {
 public:
  void restart() { given_ = met_ = 0; }
  // Behind all that `stream` was given so far: `end` bytes. They only grow, until restart().
  absl::Status record(std::uint64_t end, const UniqueStream& stream);
  // The last of them that the device has passed; 0: none. Does not block.
  absl::StatusOr<std::uint64_t> passed();

 private:
  struct Milestone {
    UniqueEvent event;
    std::uint64_t end = 0;
  };
  std::vector<Milestone> milestones_;
  std::size_t given_ = 0, met_ = 0;
};

}  // namespace bascule::inline v0::cuda
