// The HTTP pages about a run: GET /metrics for Prometheus, GET /health for supervisors.
//
//   starting ──begin()──▶ training ──show()──▶ training          the state of /health
//
// Threads: begin() and show() on the trainer's; the server's thread makes the pages.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/run/metrics.h>
#include <bascule/trainer_ref/http/page_server.h>

namespace bascule::ref {

class MetricsPage {
 public:
  // Listens at `address`, the HOST:PORT of --metrics. Returns INVALID_ARGUMENT if it is not an address, and UNAVAILABLE
  // if it is in use.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> serve(std::string_view address);

  const std::string& url() const { return server_->url(); }
  // Call this when the engines serve the version that was sent first. The run continues after `step`, until
  // `last_step`. `elapsed_seconds` is the time of the run that this one resumes; 0 if it resumes none.
  void begin(std::int64_t step, std::int64_t last_step, double elapsed_seconds, const SendReport& sent);
  // Sets the newest metrics and the estimate of the run's end. `metrics` may contain the send that begin() has counted;
  // it is not counted twice.
  void show(const StepMetrics& metrics, std::int64_t last_step, double seconds_left);

  // The contents of the two pages.
  std::string metrics_text() const;
  std::string health_json() const;

 private:
  // The results of the last evaluation.
  struct Evaluated {
    std::optional<double> reward, greedy;
    std::vector<std::pair<std::string, double>> rewards;
  };

  MetricsPage() = default;
  void note_time();
  void count(const SendReport& sent);

  mutable std::mutex mutex_;
  bool began_ = false;
  StepMetrics newest_;
  Evaluated evaluated_;
  std::int64_t last_step_ = 0;
  double seconds_left_ = kNoNumber;
  // When the last step ended, by the steady clock and by the wall clock. Until the first step has ended: when the run
  // began or, before that, when the program began.
  std::chrono::steady_clock::time_point step_ended_ = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point step_ended_at_ = std::chrono::system_clock::now();
  // Sums since the program began.
  std::map<std::string, EngineUse> use_;  // by engine
  std::int64_t steps_ = 0, dropped_ = 0, skipped_ = 0, trained_tokens_ = 0;
  double send_seconds_ = 0;
  std::uint64_t sent_bytes_ = 0;
  Version counted_version_ = 0;  // the last one of these sends

  std::unique_ptr<PageServer> server_;  // destroyed first: its thread makes pages from the members above
};

}  // namespace bascule::ref
