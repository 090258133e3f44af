// query_status(): asks a sender for its status, and waits for the answer.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/endpoint.h>
#include <bascule/transport/posix/unique_fd.h>
#include <bascule/transport/sender_status.h>
#include <bascule/transport/wire/token.h>

namespace bascule::inline v0 {

struct Answer {
  SenderStatus status;
  std::vector<UniqueFd> descriptors;
};

// Connects, asks, and waits for the answer: to connect, for at most the endpoint's suspect_after; in all, for twice
// that. `token` is for TCP. Returns UNAVAILABLE if no sender is there, or it did not answer in time.
absl::StatusOr<Answer> query_status(const Endpoint& endpoint, std::optional<Token> token);

}  // namespace bascule::inline v0
