// The measurements as a table in Markdown and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/bench/engine/cost.h>

namespace bascule::bench {

struct Measured {
  std::string what{};
  std::int64_t rows = 0, tokens = 0;
  std::vector<double> seconds{};  // of each turn
  double limit_seconds = 0;       // 0: none is known
  double made = 0;                // tokens per turn; 0: none are counted
};

class Report {
 public:
  explicit Report(const Rates& rates) : rates_(rates) {}
  void add(Measured row);
  double limit(const Cost& cost) const { return cost.seconds(rates_); }
  std::string table() const;
  std::string json() const;

 private:
  const Rates rates_;
  std::vector<Measured> rows_;
};

}  // namespace bascule::bench
