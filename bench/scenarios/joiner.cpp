// joiner: sends while a worker joins, until it serves; the baseline is the sends before.
#include <utility>

#include <bascule/bench/send_case.h>
#include <bascule/bench/statistics.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr int kBefore = 8, kBehind = 3;  // sends before a worker comes, and after its first version
constexpr int kJoins = 5;

}  // namespace

absl::Status run_joiner(Context& context) {
  const Options& asked = context.options;
  Record record = record_as_asked(context, "joiner", "the sends before");
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const RigOptions options{.model = {.bytes = asked.bytes, .tensors = asked.tensors}, .workers = asked.workers};
    BASCULE_TRY(check_rig_fits(context, options.model, asked.bytes, 0, asked.workers + 1));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, options));
    const auto timed = [&]() -> absl::StatusOr<double> {
      BASCULE_TRY(rig->step());
      const Clock::time_point start = Clock::now();
      BASCULE_TRY(rig->sender().send().status());
      return seconds_between(start, Clock::now());
    };
    const int joins = std::min(asked.repeat, kJoins);
    for (int i = 0; i < joins; ++i) {
      context.progress(cat(i + 1, "/", joins));
      for (int n = -kWarmUps; n < kBefore; ++n) {
        BASCULE_ASSIGN(const double seconds, timed());
        if (n >= 0) to.baseline_seconds.push_back(seconds);
      }
      BASCULE_TRY(rig->begin_to_add_worker(context, options));
      int behind = 0;
      for (bool serves = false; behind < kBehind; behind += serves ? 1 : 0) {
        BASCULE_ASSIGN(const double seconds, timed());
        to.ours_seconds.push_back(seconds);
        if (serves) continue;
        serves = rig->workers().back().has_answered();
      }
      BASCULE_TRY(rig->workers().back().answer().status());
      BASCULE_TRY(rig->send().status());  // checks every byte, including the joiner's
      rig->remove_worker(rig->workers().size() - 1);
    }
    return absl::OkStatus();
  });
}

}  // namespace bascule::bench
