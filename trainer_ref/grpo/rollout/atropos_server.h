// The API server of Atropos (atroposlib 0.4): collects groups from environments, and hands them to the trainer in
// batches.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/grpo/rollout/atropos_batch.h>
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {

// What environments learn of the run.
struct AtroposRun {
  std::int64_t batch_size = 0;  // sequences in a batch
  std::int64_t max_tokens = 0;  // of a sequence
  std::int64_t starting_step = 0, steps = 0;
  std::int64_t save_every = 0;
  std::string folder = {};  // of checkpoints
};

struct AtroposOptions {
  std::string url = {};  // "http://127.0.0.1:8000"
  absl::Duration batch_timeout = absl::Minutes(10);
  AtroposLimits limits = {};
  std::function<void(std::string_view)> log = [](std::string_view) {};
  std::function<bool()> stopped = [] { return false; };
};

class AtroposServer {
 public:
  explicit AtroposServer(AtroposOptions options) : options_(std::move(options)) {}

  // Registers this trainer. Environments wait for it, and begin once it has asked for a batch. UNAVAILABLE: no such
  // server answers. FAILED_PRECONDITION: it still serves an earlier trainer with another size of batch.
  absl::Status register_trainer(const AtroposRun& run);

  // Blocks until there is a batch, and registers again if the server was restarted meanwhile. DEADLINE_EXCEEDED after
  // `batch_timeout`, with what the server says of its queue; CANCELLED once stopped.
  absl::StatusOr<AtroposBatch> next_batch();

 private:
  absl::StatusOr<std::optional<AtroposBatch>> ask(absl::Duration timeout);
  absl::StatusOr<nlohmann::json> get(std::string_view path);
  std::string state();

  const AtroposOptions options_;
  AtroposRun run_;
  bool knows_us_ = true;  // since the latest answer
  HttpClient client_;
};

}  // namespace bascule::ref
