// A run's output about its steps: the files of its folder, the lines of its log, and the metrics page.
//
//   step's metrics ──▶ metrics.jsonl ──▶ report.html     (finish)
//                  ├─▶ a line of the log, with the remaining time
//                  └─▶ the page of --metrics
//
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/sender/report.h>
#include <bascule/trainer_ref/grpo/run/metrics.h>
#include <bascule/trainer_ref/grpo/run/metrics_page.h>
#include <bascule/trainer_ref/grpo/run/progress.h>

namespace bascule::ref {

class RunLog {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    std::filesystem::path folder;                // of run.json, metrics.jsonl, completions.jsonl, report.html
    bool saves = false;                          // checkpoints are written during the run
    std::function<void(std::string_view)> line;  // writes to the log
  };
  // `page` is null without --metrics.
  RunLog(Options options, std::unique_ptr<MetricsPage> page) : options_(std::move(options)), page_(std::move(page)) {}

  // Starts a run that will end with `last_step`. A new one (`step` is 0) begins new files; a resumed one appends after
  // `step`. `run` is the content of run.json.
  absl::Status start(std::int64_t step, std::int64_t last_step, const nlohmann::json& run);

  // Reports to the metrics page that the engines serve the version of `first`. For a resumed run, call start() first.
  void serving(std::int64_t step, std::int64_t last_step, const SendReport& first) {
    if (page_) page_->begin(step, last_step, elapsed_before_, first);
  }

  // Adds a step, or the evaluation before the first. Sets metrics.elapsed_seconds.
  absl::Status add(StepMetrics& metrics);
  // Adds the completions of held-out problems after `step`.
  absl::Status add_completions(std::int64_t step, const nlohmann::json& problems);

  // Writes the report of a run that was started.
  absl::Status finish();

  // Seconds since the run began, including the time of the run that it resumes.
  double seconds(Time time) const { return elapsed_before_ + std::chrono::duration<double>(time - began_).count(); }

 private:
  Options options_;
  std::unique_ptr<MetricsPage> page_;
  const Time began_ = std::chrono::steady_clock::now();
  double elapsed_before_ = 0;
  std::int64_t last_step_ = 0;
  Pace pace_;
  bool started_ = false;  // the folder has this run's files
  bool first_step_logged_ = false, no_checkpoint_logged_ = false, all_cut_logged_ = false;
};

}  // namespace bascule::ref
