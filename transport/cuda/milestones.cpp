#include <bascule/transport/cuda/milestones.h>

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::cuda {

absl::Status Milestones::record(std::uint64_t end, const UniqueStream& stream) {
  if (given_ == milestones_.size()) {
    BASCULE_ASSIGN(UniqueEvent event, UniqueEvent::make(stream.device()));
    milestones_.push_back({.event = std::move(event)});
  }
  Milestone& next = milestones_[given_];
  BASCULE_TRY(next.event.record(stream.get()));
  next.end = end;
  ++given_;
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> Milestones::passed() {
  while (met_ < given_) {
    BASCULE_ASSIGN(const bool passed, milestones_[met_].event.passed());
    if (!passed) break;
    ++met_;
  }
  return met_ == 0 ? 0 : milestones_[met_ - 1].end;
}

}  // namespace bascule::inline v0::cuda
