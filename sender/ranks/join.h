// How another rank of a sharded trainer finds rank 0.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include <bascule/sender/ranks/rank_line.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0 {

// Connects to rank 0's control socket, in the endpoint's folder, and returns the line to it. Tries again while no
// sender listens there. Returns FAILED_PRECONDITION with rank 0's reason if it refuses this rank, DEADLINE_EXCEEDED,
// CANCELLED if `interrupted`, which may be empty, returns true, and the errors of open_private_folder().
absl::StatusOr<RankLine> join_rank_0(const Endpoint& endpoint, std::uint32_t rank, std::uint32_t ranks,
                                     Deadline deadline, const std::function<bool()>& interrupted);

}  // namespace bascule::inline v0
