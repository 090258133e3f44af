#include <bascule/bench/turns.h>

#include <bascule/transport/status.h>

namespace bascule::bench {

void add_sample(Record& record, const Turn& ours, double baseline_seconds) {
  record.ours_seconds.push_back(ours.seconds);
  record.baseline_seconds.push_back(baseline_seconds);
  for (const auto& [stage, seconds] : ours.stages) record.stages[stage].push_back(seconds);
}

absl::Status take_turns(Context& context, Record& record, int repeat, const std::function<absl::StatusOr<Turn>()>& ours,
                        const std::function<absl::StatusOr<double>()>& baseline) {
  for (int i = -kWarmUps; i < repeat; ++i) {
    context.progress(i < 0 ? "warming up" : cat(i + 1, "/", repeat));
    BASCULE_ASSIGN(const Turn turn, ours());
    BASCULE_ASSIGN(const double seconds, baseline());
    if (i >= 0) add_sample(record, turn, seconds);
  }
  return absl::OkStatus();
}

}  // namespace bascule::bench
