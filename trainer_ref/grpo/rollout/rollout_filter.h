// The rollout filter: selects the completions from which a step may learn, and checks that they are enough. It keeps
// whole completions of versions that this run published, unless they are too old.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/rollout/request_queue.h>

namespace bascule::ref {

// The versions of one run of a trainer, all of one epoch.
class PublishedVersions {
 public:
  void add(std::uint64_t epoch, std::uint64_t version);  // versions grow

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t newest() const { return versions_.back(); }  // after the first add()
  bool has(std::uint64_t epoch, std::uint64_t version) const;
  std::uint64_t behind(std::uint64_t version) const;  // how many were published after it

 private:
  std::uint64_t epoch_ = 0;
  std::vector<std::uint64_t> versions_;
};

struct FilterResult {
  std::size_t kept = 0;
  double staleness_mean = 0;                    // mean over the kept tokens
  std::vector<std::size_t> lags = {};           // the number of kept completions by lag
  std::size_t cut = 0, stale = 0, foreign = 0;  // completions that were removed
  std::vector<std::pair<std::size_t, std::string>>
      by;  // of foreign ones: the engine, and "version 3 of epoch 7"; each engine once
};

// Removes from `generations` completions that were cut short (finish_reason "abort"), that have a token with a
// staleness over `max_staleness`, or a token of a version that is not in `published` (its engine follows another
// trainer).
FilterResult filter_rollouts(std::vector<Generation>& generations, const PublishedVersions& published,
                             std::int64_t max_staleness);

struct RolloutFilterOptions {
  std::int64_t max_staleness = 0;  // versions between a token and its use
  double min_batch = 0.5;          // the share of a step's completions that must remain
  std::function<void(std::string_view)> log = [](std::string_view) {};  // engines that answer with foreign versions
};

class RolloutFilter {
 public:
  explicit RolloutFilter(RolloutFilterOptions options) : options_(std::move(options)) {}

  // Call this when one more version is published. Versions must grow.
  void published(std::uint64_t epoch, std::uint64_t version) { versions_.add(epoch, version); }
  const PublishedVersions& versions() const { return versions_; }

  // Calls filter_rollouts(). `urls` are the engines' URLs, for the log.
  FilterResult apply(const std::vector<std::string>& urls, std::vector<Generation>& generations) const;

  // Returns OK if enough of the `asked` completions of `step` are left, and otherwise UNAVAILABLE, with the number of
  // missing ones for each reason.
  absl::Status check(std::int64_t step, std::size_t asked, const FilterResult& result) const;

 private:
  RolloutFilterOptions options_;
  PublishedVersions versions_;
};

}  // namespace bascule::ref
