#include "bench/send_case.h"

#include "bench/limits.h"
#include "bench/machine.h"
#include "bench/memory_need.h"
#include "bench/targets.h"
#include "bench/turns.h"
#include "transport/endpoint.h"
#include "transport/text.h"

namespace bascule::bench {

absl::Status check_rig_fits(const ModelShape& model, std::uint64_t slot_bytes, std::uint64_t limit_bytes) {
  return check_fits({{.what = "model", .bytes = model.bytes},
                     {.what = "slots", .count = 2, .bytes = slot_bytes},
                     {.what = "target of the limit", .bytes = limit_bytes}},
                    available_memory_bytes());
}

absl::Status measure_sends(Context& context, std::string_view scenario, const SendCase& send_case) {
  Record record = record_of(context, scenario);
  const ModelShape& shape = send_case.rig.model;
  BASCULE_ASSIGN(const Endpoint endpoint,
                 Endpoint::parse(context.sync.endpoint(context.folder, send_case.rig.endpoint_option)));
  const DType wire = endpoint.wire_dtype.value_or(shape.dtype);
  record.bytes = shape.bytes / size_of(shape.dtype) * size_of(wire);
  record.tensors = shape.tensors;
  record.workers = static_cast<std::uint64_t>(send_case.rig.workers);
  const int engines = send_case.rig.mode == WorkerMode::kIdle ? 0 : send_case.rig.workers;
  note_busy_threads(record, context.options.threads + engines + send_case.busy_threads);
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const auto copied = static_cast<std::uint64_t>(send_case.copied_share * static_cast<double>(to.bytes));
    BASCULE_TRY(check_rig_fits(shape, to.bytes, copied));
    BASCULE_ASSIGN(FlatCopy copy, FlatCopy::make(slot_memory_of(to.scheme), context.folder, copied, context.pool));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, send_case.rig));
    to.limit_name = copy.name();
    return take_turns(
        context, to, send_case.repeat,
        [&] {
          copy.settle();
          return rig->send();
        },
        [&]() -> absl::StatusOr<double> {
          copy.settle();
          rig->step();  // the source is as warm as it was for ours
          const double seconds = copy.run(rig->model().bytes());
          return seconds;
        });
  });
}

}  // namespace bascule::bench
