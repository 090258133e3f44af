#include <bascule/trainer_ref/grpo/run/run_log.h>

#include <utility>

#include <bascule/trainer_ref/grpo/run/json_lines.h>
#include <bascule/trainer_ref/grpo/run/report.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr const char *kMetrics = "metrics.jsonl", *kCompletions = "completions.jsonl";

}  // namespace

absl::Status RunLog::start(std::int64_t step, std::int64_t last_step, const nlohmann::json& run) {
  last_step_ = last_step;
  for (const char* name : {kMetrics, kCompletions}) {
    std::error_code error;
    if (step == 0)
      std::filesystem::remove(options_.folder / name, error);
    else
      BASCULE_TRY(keep_steps(options_.folder / name, step));
  }
  if (const auto lines = read_json_lines(options_.folder / kMetrics); lines.ok() && !lines->empty())
    elapsed_before_ = lines->back().value("elapsed_seconds", 0.0);
  BASCULE_TRY(write_file(options_.folder / "run.json",
                         run.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  started_ = true;
  pace_.begin(seconds(std::chrono::steady_clock::now()));
  return absl::OkStatus();
}

absl::Status RunLog::add(StepMetrics& metrics) {
  metrics.elapsed_seconds = seconds(std::chrono::steady_clock::now());
  if (metrics.step > 0) pace_.step_ended(metrics.elapsed_seconds);
  BASCULE_TRY(append_json_line(options_.folder / kMetrics, to_json(metrics)));
  const double seconds_left = pace_.seconds_left(last_step_ - metrics.step);
  if (page_) page_->show(metrics, last_step_, seconds_left);
  options_.line(progress_line(metrics, last_step_, seconds_left));
  if (metrics.step > 0 && !std::exchange(first_step_logged_, true))
    options_.line(first_step_line(metrics, last_step_, seconds_left));
  if (metrics.cut == 1 && !std::exchange(all_cut_logged_, true))
    options_.line(
        cat("step ", metrics.step,
            ": --max-tokens cut off every completion, so the policy learns from unfinished texts only; give a "
            "larger --max-tokens, or a model that ends its texts"));
  if (constexpr double kLong = 600;
      !options_.saves && seconds_left > kLong && !std::exchange(no_checkpoint_logged_, true))
    options_.line(
        "there is no checkpoint before the end: give --save-every, so that another run can continue if this one is "
        "killed");
  return absl::OkStatus();
}

absl::Status RunLog::add_completions(std::int64_t step, const nlohmann::json& problems) {
  return append_json_line(options_.folder / kCompletions, {{"step", step}, {"problems", problems}});
}

absl::Status RunLog::finish() { return started_ ? write_report(options_.folder) : absl::OkStatus(); }

}  // namespace bascule::ref
