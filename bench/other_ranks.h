// The ranks of a sharded trainer other than rank 0, each with a sender and a thread of this process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/task_thread.h>

namespace bascule::bench {

class OtherRanks {
 public:
  OtherRanks() = default;  // of an unsharded trainer: none
  // Ranks 1 up to `ranks`, without it. `options` are rank 0's.
  static absl::StatusOr<OtherRanks> listen(const SenderOptions& options, std::size_t ranks);

  bool empty() const { return ranks_.empty(); }
  // Makes a call on all ranks at once, for rank 0 on this thread. Returns once all have returned: rank 0's error, or
  // the first other one.
  absl::Status on_all(Sender& rank_0, const std::function<absl::Status(Sender& sender, std::size_t rank)>& call);

 private:
  struct Rank {
    explicit Rank(Sender made) : sender(std::move(made)) {}
    Sender sender;
    TaskThread thread;  // ends first
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace bascule::bench
