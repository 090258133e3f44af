// What a program or a server answers to a request for rewards (reward_batch.h has its form).
//
// Threads: any; no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct RewardAnswer {
  std::vector<double> rewards;  // one per completion; NaN: no reward for it
  std::size_t refused = 0;      // how many of them are NaN because the answer had something else than a reward
  std::string first_refused{};  // describes the first of these
};

// Reads the `count` rewards of the answer to request `id`. Python writes NaN and Infinity into JSON: NaN counts as
// null, and Infinity is refused for its completion alone, as is everything else that is not a reward. Text before the
// object is ignored. Returns INVALID_ARGUMENT, with what was expected and found, if the answer as a whole cannot be
// used.
absl::StatusOr<RewardAnswer> read_reward_answer(std::string_view answer, std::uint64_t id, std::size_t count);

// Whether a line that a program printed is no answer to request `id`, not even a malformed one: a message, a warning, a
// log entry as JSON, or one more answer to an earlier request.
bool is_stray_line(std::string_view line, std::uint64_t id);

std::string shown_answer(std::string_view answer);  // for a message: cut if it is long

}  // namespace bascule::ref
