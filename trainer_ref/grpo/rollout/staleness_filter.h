// The staleness filter: what a step may learn from of all that engines answered, and whether that is enough.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include <bascule/trainer_ref/grpo/rollout/engine_pool.h>
#include <bascule/trainer_ref/grpo/rollout/sift.h>

namespace bascule::ref {

struct StalenessOptions {
  std::int64_t max_staleness = 0;  // versions between a token and its use
  double min_batch = 0.5;          // the share of a step's completions that must be left
  std::function<void(std::string_view)> log = [](std::string_view) {};  // engines that answer with foreign versions
};

class StalenessFilter {
 public:
  explicit StalenessFilter(StalenessOptions options) : options_(std::move(options)) {}

  // One more version is published. Versions grow.
  void published(std::uint64_t epoch, std::uint64_t version) { versions_.add(epoch, version); }
  const PublishedVersions& versions() const { return versions_; }

  // Takes out of `generations` what sift() takes out. `urls` are those of the engines, for the log.
  Sifted apply(const std::vector<std::string>& urls, std::vector<Generation>& generations) const;

  // OK where enough of the `asked` completions of `step` are left. UNAVAILABLE: too few; the text counts what became of
  // the others.
  absl::Status check(std::int64_t step, std::size_t asked, const Sifted& sifted) const;

 private:
  StalenessOptions options_;
  PublishedVersions versions_;
};

}  // namespace bascule::ref
