// throughput: the step time of engines that read all their weights in every step, while a version comes each second.
// The baseline is the same engines' step time while none comes. A step is one token of each row of a batch.
#include <algorithm>
#include <thread>

#include <bascule/bench/send_case.h>
#include <bascule/bench/turns.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr auto kTurn = std::chrono::seconds(5);
constexpr int kThroughputTurns = 3;  // of each; half a minute in all

// Each engine's seconds per step, over one turn.
absl::StatusOr<std::vector<double>> run_turn(Rig& rig, bool sends) {
  BASCULE_TRY(rig.ask_all({{"do", "steps"}}).status());
  const Clock::time_point start = Clock::now();
  for (Clock::time_point next = start; sends && next < start + kTurn; next += std::chrono::seconds(1)) {
    std::this_thread::sleep_until(next);
    BASCULE_TRY(rig.step());
    BASCULE_TRY(rig.send_only().status());
  }
  std::this_thread::sleep_until(start + kTurn);
  BASCULE_ASSIGN(const auto answers, rig.ask_all({{"do", "steps"}}));
  const double seconds = seconds_between(start, Clock::now());
  std::vector<double> each;
  each.reserve(answers.size());
  for (const nlohmann::json& answer : answers) each.push_back(seconds / answer.at("count").get<double>());
  return each;
}

}  // namespace

absl::Status run_throughput(Context& context) {
  const Options& asked = context.options;
  Record record = record_as_asked(context, "throughput", "a step while no version comes");
  note_busy_threads(record, asked.workers + (context.gpu ? 1 : asked.threads));
  return measure(context, std::move(record), [&](Record& to) -> absl::Status {
    const RigOptions options{
        .model = {.bytes = asked.bytes, .tensors = asked.tensors}, .workers = asked.workers, .mode = WorkerMode::kStep};
    BASCULE_TRY(check_rig_fits(context, options.model, asked.bytes, 0, asked.workers));
    BASCULE_ASSIGN(const std::unique_ptr<Rig> rig, Rig::make(context, options));
    BASCULE_TRY(run_turn(*rig, /*sends=*/true).status());  // warms up
    for (int i = 0; i < std::min(asked.repeat, kThroughputTurns); ++i) {
      BASCULE_ASSIGN(const std::vector<double> ours, run_turn(*rig, /*sends=*/true));
      BASCULE_ASSIGN(const std::vector<double> baseline, run_turn(*rig, /*sends=*/false));
      to.ours_seconds.insert(to.ours_seconds.end(), ours.begin(), ours.end());
      to.baseline_seconds.insert(to.baseline_seconds.end(), baseline.begin(), baseline.end());
    }
    return rig->check();
  });
}

}  // namespace bascule::bench
