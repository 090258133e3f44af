// join: the time from a worker's connect() until it serves the newest version, compared with mapping the same bytes;
// and the first send after the join, compared with the send before it.
#include <bascule/bench/baselines.h>
#include <bascule/bench/machine.h>
#include <bascule/bench/memory_need.h>
#include <bascule/bench/send_case.h>
#include <bascule/bench/targets.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr int kSlots = 2;

// Maps as many bytes as a worker does, once per slot, with every page present.
absl::StatusOr<double> map_all(int descriptor, std::uint64_t bytes) {
  const Clock::time_point start = Clock::now();
  std::vector<Mapping> mapped;
  for (int i = 0; i < kSlots; ++i) {
    BASCULE_ASSIGN(Mapping mapping, Mapping::map(descriptor, bytes, Access::kReadOnly));
    mapped.push_back(std::move(mapping));
  }
  return seconds_between(start, Clock::now());
}

}  // namespace

absl::Status run_join(Context& context) {
  const Options& options = context.options;
  Record join = record_as_asked(context, "join", "mapping two slots, every page present");
  Record first = join;
  first.scenario = "join_first_send";
  first.baseline_name = "the send before the join";
  absl::Status measured;
  BASCULE_TRY(measure(context, std::move(join), [&](Record& to) -> absl::Status {
    measured = [&]() -> absl::Status {
      BASCULE_TRY(check_on_host(context, "its baseline maps host memory"));
      const ModelShape shape{.bytes = options.bytes, .tensors = options.tensors};
      BASCULE_TRY(check_rig_fits(context, shape, options.bytes, options.bytes));
      BASCULE_ASSIGN(const FlatCopy memory,
                     FlatCopy::make(slot_memory_of(to.scheme), context.folder, options.bytes, context.pool));
      BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, {.model = shape, .workers = options.workers}));
      const int repeat = std::max(3, options.repeat / 5);
      for (int i = -1; i < repeat; ++i) {
        context.progress(i < 0 ? "warming up" : cat(i + 1, "/", repeat));
        BASCULE_ASSIGN(const Turn before, rig->send());
        BASCULE_ASSIGN(const nlohmann::json joined, rig->workers().front().call({{"do", "rejoin"}}));
        BASCULE_ASSIGN(const double mapped, map_all(memory.descriptor(), options.bytes));
        // Its ack may still be on the way; if a send came first, that worker would have to catch up.
        BASCULE_TRY(rig->sender().wait_for_workers(options.workers, absl::Seconds(30)).status());
        BASCULE_ASSIGN(const Turn after, rig->send());
        if (i < 0) continue;
        add_sample(
            to, {.seconds = joined.at("join").get<double>(), .stages = {{"leave", joined.at("leave").get<double>()}}},
            mapped);
        add_sample(first, after, before.seconds);
      }
      return absl::OkStatus();
    }();
    return measured;
  }));
  return measure(context, std::move(first), [&](Record&) { return measured; });
}

}  // namespace bascule::bench
