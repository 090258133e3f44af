// What a run leaves and says of its steps: the files of its folder, lines for people, and the page for those that
// watch.
//
//   step's metrics ──▶ metrics.jsonl ──▶ report.html     (finish)
//                  ├─▶ a line of the log, with the time that is left
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
    bool saves = false;                          // checkpoints are written as the run goes on
    std::function<void(std::string_view)> line;  // for people
  };
  // `page`: null if nobody watches.
  RunLog(Options options, std::unique_ptr<MetricsPage> page) : options_(std::move(options)), page_(std::move(page)) {}

  // Of a run that will end with `last_step`. A new one (`step` is 0) starts its files afresh, a resumed one goes on
  // behind its step. `run` is what run.json says.
  absl::Status start(std::int64_t step, std::int64_t last_step, const nlohmann::json& run);

  // For those that watch: the engines serve the version of `first`. Of a resumed run, behind start().
  void serving(std::int64_t step, std::int64_t last_step, const SendReport& first) {
    if (page_) page_->begin(step, last_step, elapsed_before_, first);
  }

  // One more step, or the evaluation before the first. Sets metrics.elapsed_seconds.
  absl::Status add(StepMetrics& metrics);
  // What was answered to held-out problems, behind `step`.
  absl::Status add_completions(std::int64_t step, const nlohmann::json& problems);

  // Writes the report of a run that was started.
  absl::Status finish();

  // Since the run began, that which a resumed one goes on with included.
  double seconds(Time time) const { return elapsed_before_ + std::chrono::duration<double>(time - began_).count(); }

 private:
  Options options_;
  std::unique_ptr<MetricsPage> page_;
  const Time began_ = std::chrono::steady_clock::now();
  double elapsed_before_ = 0;
  std::int64_t last_step_ = 0;
  Pace pace_;
  bool started_ = false;  // the folder has this run's files
  bool said_first_step_ = false, said_no_checkpoint_ = false;
};

}  // namespace bascule::ref
