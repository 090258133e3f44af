// durable: the time until the version would survive a loss of power, compared with a write of the same bytes and fsync.
#include <bascule/bench/baselines.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

absl::Status run_durable(Context& context) {
  const Options& options = context.options;
  Record record = record_as_asked(context, "durable", "write and fsync");
  if (context.results.machine.facts["filesystem"] == "tmpfs")
    record.note = "the folder lies in memory (tmpfs): give --folder on a disk";
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    BASCULE_TRY(check_on_host(context, "its baseline writes a file from host memory"));
    const ModelShape shape{.bytes = options.bytes, .tensors = options.tensors};
    BASCULE_TRY(check_rig_fits(context, shape, options.bytes, options.bytes));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig,
                   Rig::make(context, {.model = shape, .endpoint_option = "durable=on", .workers = options.workers}));
    BASCULE_ASSIGN(WriteAndSync baseline, WriteAndSync::make(context.folder, rig->model().bytes()));
    return take_turns(
        context, to, options.repeat, [&] { return rig->send(); },
        [&]() -> absl::StatusOr<double> {
          BASCULE_TRY(rig->step());
          return baseline.run(rig->model().bytes());
        });
  });
}

}  // namespace bascule::bench
