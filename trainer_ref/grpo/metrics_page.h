// What a run shows to those that watch it: GET /metrics for Prometheus, GET /health for supervisors.
//
// Threads: show() on the trainer's; pages are asked for on the server's own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/metrics.h>
#include <bascule/trainer_ref/http/page_server.h>

namespace bascule::ref {

class MetricsPage {
 public:
  // Listens at `address`, HOST:PORT as --metrics was told. INVALID_ARGUMENT: it is none; UNAVAILABLE: it is taken.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> serve(std::string_view address);

  const std::string& url() const { return server_->url(); }
  // The newest line, and what is known of the run's end.
  void show(const StepMetrics& metrics, std::int64_t last_step, double seconds_left);

  // What the two pages say.
  std::string metrics_text() const;
  std::string health_json() const;

 private:
  MetricsPage() = default;

  mutable std::mutex mutex_;
  bool began_ = false;  // there is a line
  StepMetrics newest_;
  std::int64_t last_step_ = 0;
  double seconds_left_ = kNoNumber;
  // Sums since the program began.
  std::map<std::string, EngineUse> use_;  // by engine
  std::int64_t steps_ = 0, dropped_ = 0, skipped_ = 0, trained_tokens_ = 0;
  double send_seconds_ = 0;
  std::uint64_t sent_bytes_ = 0;

  std::unique_ptr<PageServer> server_;  // goes first: it asks for pages
};

}  // namespace bascule::ref
