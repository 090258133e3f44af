// Which completions of a step may be learned from: whole ones, of versions that this run published, and not too old.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/rollout/request_queue.h>

namespace bascule::ref {

// The versions of one run of a trainer, all of one epoch.
class PublishedVersions {
 public:
  void add(std::uint64_t epoch, std::uint64_t version);  // versions grow

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t newest() const { return versions_.back(); }  // once there is one
  bool has(std::uint64_t epoch, std::uint64_t version) const;
  std::uint64_t behind(std::uint64_t version) const;  // how many were published after it

 private:
  std::uint64_t epoch_ = 0;
  std::vector<std::uint64_t> versions_;
};

struct Sifted {
  std::size_t kept = 0;
  double staleness_mean = 0;                    // versions behind the newest, of a token that is kept
  std::vector<std::size_t> lags = {};           // kept completions by how far behind their oldest token is
  std::size_t cut = 0, stale = 0, foreign = 0;  // completions that were taken out
  std::vector<std::pair<std::size_t, std::string>>
      by;  // foreign ones: which engine, and "version 3 of epoch 7"; each once
};

// Takes out of `generations` what was cut short (finish_reason "abort"), what has a token more than `max_staleness`
// versions behind, and what has a token of a version that is not in `published`: its engine is another trainer's.
Sifted sift(std::vector<Generation>& generations, const PublishedVersions& published, std::int64_t max_staleness);

}  // namespace bascule::ref
