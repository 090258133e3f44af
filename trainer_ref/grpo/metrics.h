// metrics.jsonl: a line a step, as docs and reports read it. Step 0 is the state before training: its line holds an
// evaluation, and null where a step's own numbers would stand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/report.h>

namespace bascule::ref {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();  // null in JSON

// What one engine generated with one version within a step; seconds since the run began.
struct EngineSpan {
  std::string engine;
  std::uint64_t version = 0;
  double begin_seconds = 0, end_seconds = 0;
  std::int64_t tokens = 0;
};

struct StepSeconds {
  double rollout = kNoNumber, score = kNoNumber, train = kNoNumber, send = kNoNumber;
};

struct StepMetrics {
  std::int64_t step = 0;
  std::uint64_t version = 0;  // that the engines serve after this step
  double reward_mean = kNoNumber, reward_std = kNoNumber;
  double loss = kNoNumber, kl = kNoNumber, clip_fraction = kNoNumber, grad_norm = kNoNumber;
  double completion_tokens_mean = kNoNumber;
  double staleness_mean = kNoNumber;  // versions between a token and its use
  StepSeconds seconds = {};
  double elapsed_seconds = 0;           // since the run began, at the end of the step
  std::int64_t dropped = 0;             // completions that were lost or too stale
  std::int64_t skipped_updates = 0;     // inner iterations whose loss or gradient was not finite: they changed nothing
  std::optional<SendReport> send = {};  // of the version that followed this step
  std::vector<EngineSpan> engines = {};
  std::vector<std::pair<std::string, double>> rewards = {};       // the mean of each, without its weight
  std::optional<double> eval_reward = {};                         // mean on held-out problems, sampled at temperature 1
  std::optional<double> eval_greedy = {};                         // likewise at temperature 0
  std::vector<std::pair<std::string, double>> eval_rewards = {};  // as `rewards`, of the sampled ones
};

nlohmann::json to_json(const StepMetrics& metrics);
std::string progress_line(const StepMetrics& metrics, std::int64_t last_step);

// The lines of a JSON-lines file. INVALID_ARGUMENT names a line that is none. A last line without a newline does not
// count: a run was killed while it wrote it.
absl::StatusOr<std::vector<nlohmann::json>> read_json_lines(const std::filesystem::path& file);

// Adds a line and flushes it: a reader sees whole lines, a crash costs at most the last.
absl::Status append_json_line(const std::filesystem::path& file, const nlohmann::json& line);

// Leaves the lines whose "step" is at most `last_step`: what a run that resumes behind it will not write again.
absl::Status keep_steps(const std::filesystem::path& file, std::int64_t last_step);

}  // namespace bascule::ref
