// send_async: the time until the trainer may continue, compared with the time of the pack, for which it must wait.
#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

absl::Status run_send_async(Context& context) {
  const Options& options = context.options;
  Record record = record_as_asked(context, "send_async", "the pack");
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const ModelShape shape{.bytes = options.bytes, .tensors = options.tensors};
    BASCULE_TRY(check_rig_fits(context, shape, options.bytes, 0));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, {.model = shape, .workers = options.workers}));
    double pack = 0;  // of the previous turn's send
    return take_turns(
        context, to, options.repeat,
        [&]() -> absl::StatusOr<Turn> {
          BASCULE_TRY(rig->step());
          const Clock::time_point start = Clock::now();
          BASCULE_TRY(rig->sender().send_async());
          const double returned = seconds_between(start, Clock::now());
          BASCULE_ASSIGN(const SendReport report, rig->sender().wait_async(absl::Minutes(1)));
          const double settled = seconds_between(start, Clock::now());
          if (!report.complete()) return absl::InternalError("not every worker serves the version");
          BASCULE_TRY(rig->check());
          pack = report.seconds.pack;
          return Turn{.seconds = returned, .stages = stages_of(report, settled)};
        },
        [&]() -> absl::StatusOr<double> { return pack; });
  });
}

}  // namespace bascule::bench
