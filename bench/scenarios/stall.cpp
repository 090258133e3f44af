// stall: the time that an engine which reads all its weights in every step loses at a flip, in wall-clock and its
// thread's CPU time. The baseline is the same engine's loss at a boundary without a flip.
#include <algorithm>
#include <utility>

#include <bascule/bench/send_case.h>
#include <bascule/bench/stall_log.h>
#include <bascule/bench/turns.h>
#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

// Small, so that a step has little noise. The engine reads other memory between steps, so the weights are cold anyway.
constexpr std::uint64_t kBytes = 8 << 20;
constexpr int kEngines = 1;

void add_flip(Record& record, double commit_seconds, double lost_seconds) {
  record.ours_seconds.push_back(commit_seconds + lost_seconds);
  record.stages["inside_commit"].push_back(commit_seconds);
  record.stages["first_touches"].push_back(lost_seconds);
}

absl::Status collect(Context& context, const RigOptions& options, int flips, Record& wall, Record& cpu) {
  double page_faults = 0;
  BASCULE_TRY(check_rig_fits(context, options.model, options.model.bytes, 0));
  BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, options));
  for (int i = -kWarmUps; i < flips; ++i) {
    context.progress(i < 0 ? "warming up" : cat(i + 1, "/", flips));
    BASCULE_TRY(rig->step());
    BASCULE_TRY(rig->send_only().status());
    BASCULE_TRY(rig->ask_all({{"do", "settle"}, {"steps", StallLog::kStepsToSettle + 2}}).status());
    BASCULE_ASSIGN(const auto answers, rig->ask_all({{"do", "stalls"}}));
    BASCULE_TRY(rig->check());
    if (i < 0) continue;
    for (const nlohmann::json& answer : answers) {
      page_faults += answer.at("page_faults").get<double>();
      for (const nlohmann::json& stall : answer.value("flips", nlohmann::json::array())) {
        add_flip(wall, stall.at(0), stall.at(1));
        add_flip(cpu, stall.at(2), stall.at(3));
      }
      for (const nlohmann::json& stall : answer.value("ordinary", nlohmann::json::array())) {
        wall.baseline_seconds.push_back(stall.at(0).get<double>() + stall.at(1).get<double>());
        cpu.baseline_seconds.push_back(stall.at(2).get<double>() + stall.at(3).get<double>());
      }
    }
  }
  context.results.counts.push_back({.scheme = context.sync.scheme,
                                    .what = cat("engine: page faults in the steps after ", flips, " flips"),
                                    .unit = "page faults",
                                    .found = page_faults});
  return absl::OkStatus();
}

}  // namespace

absl::Status run_stall(Context& context) {
  RigOptions options{.model = {.bytes = kBytes, .tensors = context.options.tensors},
                     .workers = kEngines,
                     .sender_threads = std::max(1, kernels::usable_cores() - kEngines),
                     .mode = WorkerMode::kStep};
  Record wall = record_of(context, "stall");
  wall.bytes = kBytes;
  wall.tensors = context.options.tensors;
  wall.workers = kEngines;
  wall.baseline_name = "a boundary without a flip";
  note_busy_threads(wall, options.sender_threads + kEngines);
  Record cpu = wall;
  cpu.scenario = "stall_cpu";
  absl::Status collected;
  BASCULE_TRY(measure(context, std::move(wall), [&](Record& to) {
    collected = collect(context, options, 4 * context.options.repeat, to, cpu);
    return collected;
  }));
  return measure(context, std::move(cpu), [&](Record&) { return collected; });
}

}  // namespace bascule::bench
