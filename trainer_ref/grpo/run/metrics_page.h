// What a run shows to those that watch it: GET /metrics for Prometheus, GET /health for supervisors.
//
//   starting ──begin()──▶ training ──show()──▶ training          the state of /health
//
// Threads: begin() and show() on the trainer's; pages are asked for on the server's own.
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
  // Listens at `address`, HOST:PORT as --metrics was told. INVALID_ARGUMENT: it is none; UNAVAILABLE: it is taken.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> serve(std::string_view address);

  const std::string& url() const { return server_->url(); }
  // The engines serve what was sent first, and the run goes on behind `step`, to `last_step`. `elapsed_seconds` are
  // those of the run that this one resumes; 0: it resumes none.
  void begin(std::int64_t step, std::int64_t last_step, double elapsed_seconds, const SendReport& sent);
  // The newest line, and what is known of the run's end. A send that begin() was told of may stand in a line again.
  void show(const StepMetrics& metrics, std::int64_t last_step, double seconds_left);

  // What the two pages say.
  std::string metrics_text() const;
  std::string health_json() const;

 private:
  // Of the last step that was evaluated.
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
  // When the last step ended; before the first, when the run began, or else the program. By the clock that only goes
  // on, and by that of the day.
  std::chrono::steady_clock::time_point step_ended_ = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point step_ended_at_ = std::chrono::system_clock::now();
  // Sums since the program began.
  std::map<std::string, EngineUse> use_;  // by engine
  std::int64_t steps_ = 0, dropped_ = 0, skipped_ = 0, trained_tokens_ = 0;
  double send_seconds_ = 0;
  std::uint64_t sent_bytes_ = 0;
  Version counted_version_ = 0;  // the last one of these sends

  std::unique_ptr<PageServer> server_;  // goes first: it asks for pages
};

}  // namespace bascule::ref
