// How another rank of a sharded trainer finds rank 0, and what both say of ranks that do not come.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/sender/ranks/rank_line.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/sender_status.h>

namespace bascule::inline v0 {

// Connects to rank 0's control socket, in the endpoint's folder, and returns the line to it. Tries again while no
// sender listens there. Returns FAILED_PRECONDITION with rank 0's reason if it refuses this rank, DEADLINE_EXCEEDED,
// CANCELLED if `interrupted`, which may be empty, returns true, and the errors of open_private_folder().
absl::StatusOr<RankLine> join_rank_0(const Endpoint& endpoint, std::uint32_t rank, std::uint32_t ranks,
                                     Deadline deadline, const std::function<bool()>& interrupted);

// Asks rank 0's I/O thread which ranks have joined. Waits for at most 5 seconds or suspect_after. UNAVAILABLE: no
// answer.
absl::StatusOr<std::vector<RankStatus>> ask_for_ranks(const Endpoint& endpoint);

// DEADLINE_EXCEEDED names the ranks that have not joined or are gone; OK if there are none.
absl::Status missing_ranks(std::span<const RankStatus> ranks);

}  // namespace bascule::inline v0
