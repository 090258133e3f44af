#include <bascule/bench/other_ranks.h>

#include <cstdint>
#include <future>

#include <bascule/transport/status.h>

namespace bascule::bench {

absl::StatusOr<OtherRanks> OtherRanks::listen(const SenderOptions& options, std::size_t ranks) {
  OtherRanks made;
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    SenderOptions of_rank = options;
    of_rank.rank = static_cast<std::uint32_t>(rank);
    BASCULE_ASSIGN(Sender sender, Sender::listen(std::move(of_rank)));
    made.ranks_.push_back(std::make_unique<Rank>(std::move(sender)));
  }
  return made;
}

absl::Status OtherRanks::on_all(Sender& rank_0,
                                const std::function<absl::Status(Sender& sender, std::size_t rank)>& call) {
  std::vector<std::future<absl::Status>> others;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    others.push_back(done->get_future());
    ranks_[i]->thread.submit([&call, &of = *ranks_[i], done, i] { done->set_value(call(of.sender, i + 1)); });
  }
  absl::Status status = call(rank_0, 0);
  for (std::future<absl::Status>& other : others) status.Update(other.get());
  return status;
}

}  // namespace bascule::bench
