// The results of a bascule-bench run: records (times with their baseline), counts (memory, descriptors, allocations),
// and the machine. docs/measurements/README.md states the JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/machine.h>
#include <bascule/bench/statistics.h>

namespace bascule::bench {

using Stages = std::map<std::string, double>;  // seconds by the stage's name

// A record's target: its ratio of medians, or its seconds at a percentile, must be at most `at_most`.
struct Goal {
  enum class Of { kRatio, kP50Seconds, kP99Seconds };
  Of of = Of::kRatio;
  double at_most = 0;
};

struct Record {
  std::string scheme, scenario;
  std::uint64_t bytes = 0;  // payload, counted once
  std::uint64_t tensors = 0, workers = 0;
  std::string device = "cpu";
  std::vector<double> ours_seconds;  // in the order measured
  std::string baseline_name;
  std::vector<double> baseline_seconds;
  std::map<std::string, std::vector<double>> stages;  // of ours, in seconds
  std::optional<Goal> target;
  std::string note;     // what a reader must know about the row
  std::string skipped;  // why nothing was measured; empty if something was

  std::optional<double> ratio() const;  // the p50 of ours over the baseline's
  std::optional<bool> met() const;      // nullopt without a target
};

struct Count {
  std::string scheme{}, what{}, unit{};  // "bytes", or the things counted
  double found = 0;
  std::optional<double> at_most{};
  std::string note{}, skipped{};

  std::optional<bool> met() const;
};

struct Results {
  Machine machine;
  std::uint64_t seed = 0;
  std::string command;
  std::vector<Record> records;
  std::vector<Count> counts;
};

std::string to_json(const Results& results);
// INVALID_ARGUMENT says where `text` differs from the format of to_json. Unknown keys are ignored.
absl::StatusOr<Results> results_from_json(std::string_view text);
absl::StatusOr<Results> read_results(const std::string& file);  // the error names the file

}  // namespace bascule::bench
