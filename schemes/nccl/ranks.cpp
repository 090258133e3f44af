#include <bascule/schemes/nccl/ranks.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {
namespace {

// An abort that has not returned by then never will; its memory is lost to this process.
constexpr absl::Duration kLeaves = absl::Seconds(10);

}  // namespace

absl::Status Ranks::open(const Library& library, std::shared_ptr<Place> place, int max_ctas) {
  BASCULE_ASSIGN(scratch_, place->allocate(kWarmBytes, "a broadcast without data"));
  library_ = &library;
  place_ = std::move(place);
  max_ctas_ = max_ctas;
  return absl::OkStatus();
}

void Ranks::expect(CommGroupId group) { joined_[group]; }

std::unique_ptr<Communicator> Ranks::make(const GroupMessage& message, Communicator::Handlers handlers) const {
  return std::make_unique<Communicator>(
      *library_, place_, Rank{.group = message.group, .rank = message.rank, .ranks = message.ranks, .id = message.id},
      Communicator::Options{.max_ctas = max_ctas_}, std::move(handlers));
}

void Ranks::put(CommGroupId group, std::unique_ptr<Communicator> communicator) {
  if (const auto joined = joined_.find(group); joined != joined_.end())
    joined->second.communicator = std::move(communicator);
}

Communicator* Ranks::find(CommGroupId group) const {
  const auto joined = joined_.find(group);
  return joined == joined_.end() || joined->second.leaves ? nullptr : joined->second.communicator.get();
}

void Ranks::warm(CommGroupId group, std::function<void(absl::Status)> done) {
  if (Communicator* const communicator = find(group))
    communicator->broadcast(warm_broadcast(scratch_, std::move(done)));
}

void Ranks::leave(Joined& joined) {
  if (!joined.leaves) joined.leaves = Clock::now();
  if (joined.communicator) joined.communicator->abort();
}

bool Ranks::leave(CommGroupId group) {
  const auto joined = joined_.find(group);
  if (joined == joined_.end()) return false;
  leave(joined->second);
  return true;
}

void Ranks::leave_all() {
  for (auto& [group, joined] : joined_) leave(joined);
}

std::unique_ptr<Communicator> Ranks::end(CommGroupId group) {
  const auto joined = joined_.extract(group);
  return joined ? std::move(joined.mapped().communicator) : nullptr;
}

bool Ranks::hangs() const {
  const Clock::time_point since = Clock::now() - on_clock(kLeaves);
  return std::ranges::any_of(joined_,
                             [since](const auto& each) { return each.second.leaves && *each.second.leaves < since; });
}

}  // namespace bascule::inline v0::nccl
