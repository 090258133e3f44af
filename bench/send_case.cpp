#include <bascule/bench/send_case.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include <bascule/bench/baselines.h>
#include <bascule/bench/flat_broadcast.h>
#include <bascule/bench/machine.h>
#include <bascule/bench/memory_need.h>
#include <bascule/bench/targets.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::bench {

absl::Status check_rig_fits(Context& context, const ModelShape& model, std::uint64_t slot_bytes,
                            std::uint64_t baseline_bytes, int workers) {
  const Need one_model{.what = "model", .bytes = model.bytes}, slots{.what = "slots", .count = 2, .bytes = slot_bytes},
      target{.what = "target of the baseline", .bytes = baseline_bytes};
  const std::string where = record_of(context, "").device;
  if (context.gpu && context.slots_on_gpu) {
    BASCULE_ASSIGN(const std::uint64_t free, context.gpu->free_bytes());
    return annotate(check_fits({one_model, slots, target}, free), where);
  }
  if (!context.gpu) return check_fits({one_model, slots, target}, available_memory_bytes());
  // The sender packs into its own slot on its GPU, and each worker on the same GPU keeps two receive buffers.
  const std::uint64_t there = context.worker_device == context.device ? 2 * std::uint64_t(workers) : 0;
  BASCULE_ASSIGN(const std::uint64_t free, context.gpu->free_bytes());
  BASCULE_TRY(annotate(
      check_fits({one_model, {.what = "slots besides the host's slots", .count = 1 + there, .bytes = slot_bytes}},
                 free),
      where));
  return check_fits({slots, target}, available_memory_bytes());
}

absl::Status check_on_host(const Context& context, std::string_view why) {
  if (!context.gpu && context.worker_device == kHost) return absl::OkStatus();
  return unimplemented("only with host memory at both ends: ", why);
}

absl::StatusOr<std::unique_ptr<PlainCopy>> copy_of(Context& context, std::uint64_t bytes) {
  const int from = context.device, to = context.worker_device;
  if (from == kHost && to == kHost) {
    BASCULE_ASSIGN(FlatCopy copy,
                   FlatCopy::make(slot_memory_of(context.sync.scheme), context.folder, bytes, context.pool));
    return std::make_unique<FlatCopy>(std::move(copy));
  }
  if (broadcasts(context.sync.scheme)) return make_flat_broadcast(context, {bytes});
  // Slots on the host need two copies, which can overlap.
  const bool one_way = from != kHost && !context.slots_on_gpu;
  return make_device_copy(from, one_way ? kHost : to, bytes);
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
  const int packing = context.gpu ? 1 : context.options.threads;  // a GPU packs by itself
  note_busy_threads(record, packing + engines + send_case.busy_threads);
  Record after = record;
  after.scenario += "_after_pack";
  after.baseline_name = "two Unix-socket turns";
  BASCULE_TRY(measure(context, std::move(record), [&](Record& to) -> absl::Status {
    if (send_case.only_on_host != nullptr) BASCULE_TRY(check_on_host(context, send_case.only_on_host));
    const auto copied = static_cast<std::uint64_t>(send_case.copied_share * static_cast<double>(to.bytes));
    BASCULE_TRY(check_rig_fits(context, shape, to.bytes, copied, send_case.rig.workers));
    BASCULE_ASSIGN(const std::unique_ptr<PlainCopy> copy, copy_of(context, copied));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, send_case.rig));
    BASCULE_ASSIGN(SocketTurns sockets, SocketTurns::make(send_case.rig.workers));
    to.baseline_name = copy->name();
    return take_turns(
        context, to, send_case.repeat,
        [&]() -> absl::StatusOr<Turn> {
          copy->settle();
          BASCULE_ASSIGN(Turn turn, rig->send());
          if (send_case.after_pack) {
            BASCULE_ASSIGN(const double two_turns, sockets.run(2));
            add_sample(after,
                       {.seconds = turn.seconds - turn.stages["wait"] - turn.stages["pack"], .stages = turn.stages},
                       two_turns);
          }
          return turn;
        },
        [&]() -> absl::StatusOr<double> {
          copy->settle();
          BASCULE_TRY(rig->step());  // the source is as warm as for our turn
          return copy->run(rig->model().bytes());
        });
  }));
  if (!send_case.after_pack) return absl::OkStatus();
  const auto cut_warm_ups = [](std::vector<double>& samples) {
    samples.erase(samples.begin(), samples.begin() + std::min<std::ptrdiff_t>(kWarmUps, std::ssize(samples)));
  };
  cut_warm_ups(after.ours_seconds);
  cut_warm_ups(after.baseline_seconds);
  for (auto& [stage, seconds] : after.stages) cut_warm_ups(seconds);
  return measure(context, std::move(after), [](Record& of) -> absl::Status {
    if (of.ours_seconds.empty()) return unimplemented("the sends themselves could not be measured");
    return absl::OkStatus();
  });
}

}  // namespace bascule::bench
