// Groups of environments of Atropos, which sample with the engines by themselves and score the completions.
#pragma once

#include <functional>
#include <string_view>

#include <bascule/trainer_ref/grpo/group_source.h>
#include <bascule/trainer_ref/grpo/rollout/atropos_server.h>

namespace bascule::ref {

class AtroposGroups final : public GroupSource {
 public:
  // `min_batch`: the share of a batch's sequences that must be usable. `log` gets a line for each reason that some are
  // not.
  AtroposGroups(AtroposServer server, double min_batch, std::function<void(std::string_view)> log);

  // Blocks as AtroposServer::next_batch() does.
  absl::StatusOr<Rollouts> next(std::int64_t step) override;
  bool is_scored() const override { return true; }

 private:
  AtroposServer server_;
  const double min_batch_;
  const std::function<void(std::string_view)> log_;
};

}  // namespace bascule::ref
