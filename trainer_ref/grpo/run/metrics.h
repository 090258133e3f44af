// metrics.jsonl: one line per step. Step 0 is the state before training: its line has an evaluation, and null for a
// step's own numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bascule/sender/report.h>
#include <bascule/trainer_ref/grpo/rollout/use_meter.h>
#include <bascule/trainer_ref/grpo/run/update_statistics.h>

namespace bascule::ref {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();  // null in JSON

// One engine's work with one version within a step; seconds since the run began.
struct EngineSpan {
  std::string engine;
  std::uint64_t version = 0;
  double begin_seconds = 0, end_seconds = 0;
  std::int64_t tokens = 0;
};

// Statistics of a step's completions.
struct RolloutFigures {
  std::int64_t dropped = 0;            // completions that were lost or too stale
  double staleness_mean = kNoNumber;   // mean over the tokens
  std::vector<std::size_t> lags = {};  // the number of completions with lag 0, 1, 2, …
  double tail_seconds = kNoNumber;     // from 90% of the answers to the last
  std::vector<EngineSpan> spans = {};
  std::vector<std::pair<std::string, EngineUse>> use = {};  // of each engine, since the previous step
};

struct StepSeconds {
  double rollout = kNoNumber, score = kNoNumber, train = kNoNumber, send = kNoNumber;
};

struct StepMetrics {
  std::int64_t step = 0;
  std::uint64_t version = 0;                                 // the version that the engines serve after this step
  double reward_mean = kNoNumber, reward_std = kNoNumber;    // of the completions that are scored
  std::vector<std::pair<std::string, double>> rewards = {};  // the mean of each, without its weight
  std::int64_t unscored = 0;                                 // completions to which no reward applies
  std::int64_t groups = 0, flat_groups = 0;                  // flat: all rewards are equal before --overlong-penalty
  std::int64_t replaced_groups = 0;                          // of further problems, in place of flat or lost ones
  double completion_tokens_mean = kNoNumber;
  double cut = kNoNumber;  // share of completions that max_tokens ended
  RolloutFigures rollouts = {};
  UpdateStatistics update = {};
  StepSeconds seconds = {};
  double elapsed_seconds = 0;           // since the run began, at the end of the step
  std::optional<SendReport> send = {};  // of the version that followed this step
  // Means over the scored completions of held-out problems, NaN if there are none; nullopt without an evaluation.
  std::optional<double> eval_reward = {};                         // sampled at temperature 1
  std::optional<double> eval_greedy = {};                         // at temperature 0
  std::vector<std::pair<std::string, double>> eval_rewards = {};  // like `rewards`, of these sampled completions

  double lag_mean() const;      // versions; NaN without completions
  double idle_seconds() const;  // engine-seconds lost to stragglers
};

nlohmann::json to_json(const StepMetrics& metrics);

}  // namespace bascule::ref
