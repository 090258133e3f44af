#include <bascule/trainer_ref/grpo/atropos_groups.h>

#include <utility>

#include "absl/strings/str_join.h"
#include <bascule/transport/status.h>

namespace bascule::ref {

AtroposGroups::AtroposGroups(AtroposServer server, double min_batch, std::function<void(std::string_view)> log)
    : server_(std::move(server)), min_batch_(min_batch), log_(std::move(log)) {}

absl::StatusOr<GroupSource::Rollouts> AtroposGroups::next(std::int64_t step) {
  BASCULE_ASSIGN(AtroposBatch batch, server_.next_batch());
  const std::string dropped = cat("step ", step, ": ", batch.dropped, " of ", batch.sequences,
                                  " sequences are not used: ", absl::StrJoin(batch.why, "; "));
  const auto kept = static_cast<double>(batch.sequences - batch.dropped);
  if (kept == 0 || kept < min_batch_ * static_cast<double>(batch.sequences))
    return unavailable(dropped, "; --min-batch=", min_batch_, " of them must remain");
  if (batch.dropped > 0) log_(dropped);
  return Rollouts{.groups = std::move(batch.groups), .figures = {.dropped = static_cast<std::int64_t>(batch.dropped)}};
}

}  // namespace bascule::ref
