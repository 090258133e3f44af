#include "schemes/nccl/model_communicator.h"

#include <algorithm>
#include <utility>

namespace bascule::inline v0::nccl {

ModelCommunicator::ModelCommunicator(const std::vector<WorkerId>& workers) {
  ranks_[0].called = true;
  for (const WorkerId worker : workers) ranks_[worker];
}

std::vector<WorkerId> ModelCommunicator::ranks() const {
  std::vector<WorkerId> ranks;
  for (const auto& [id, rank] : ranks_) ranks.push_back(id);
  return ranks;
}

bool ModelCommunicator::is_busy(WorkerId id) const {
  const Rank& rank = ranks_.at(id);
  return !rank.gone && rank.at < rank.posted.size();
}

bool ModelCommunicator::end_init(WorkerId id, bool fails) {
  Rank& rank = ranks_.at(id);
  const bool all = std::ranges::all_of(ranks_, [](const auto& each) { return each.second.called; });
  if (!rank.called || rank.made || rank.gone || !(all || fails)) return false;
  rank.made = true;
  rank.broken |= fails;
  return true;
}

std::vector<ModelCommunicator::Posted> ModelCommunicator::fail(WorkerId id) {
  Rank& rank = ranks_.at(id);
  rank.broken = true;
  std::vector<Posted> failed(rank.posted.begin() + static_cast<std::ptrdiff_t>(rank.at), rank.posted.end());
  rank.at = rank.posted.size();
  return failed;
}

// ---- a broadcast ----

std::optional<ModelCommunicator::Posted> ModelCommunicator::next(WorkerId id) const {
  if (!is_busy(id)) return std::nullopt;
  const std::size_t at = ranks_.at(id).at;
  const bool all = std::ranges::all_of(ranks_, [at](const auto& each) {
    const Rank& rank = each.second;
    return rank.posted.size() > at && (rank.at > at || (!rank.gone && !rank.broken));
  });
  return all ? std::optional(ranks_.at(id).posted[at]) : std::nullopt;
}

bool ModelCommunicator::is_paired(WorkerId id) const {
  const Rank& rank = ranks_.at(id);
  return std::ranges::all_of(ranks_,
                             [&](const auto& each) { return each.second.posted[rank.at] == rank.posted[rank.at]; });
}

std::uint64_t ModelCommunicator::move(WorkerId id) {
  Rank& rank = ranks_.at(id);
  const Posted& posted = rank.posted[rank.at];
  rank.there = std::min(std::max(rank.there, posted.from) + kPiece, posted.bytes());
  if (rank.there < posted.bytes()) return rank.there;
  ++rank.at;
  return std::exchange(rank.there, 0);
}

}  // namespace bascule::inline v0::nccl
