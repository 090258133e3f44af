// An engine's stall at a flip, measured at its token boundaries: the time inside commit(), and the time that the next
// step loses, compared with later steps, because it touches pages for the first time.
//
//   boundary   flip    1 … 8      9
//   step       first   baseline   ordinary
//
// A stall is the time inside commit() plus the time by which the next step exceeded the median of the baseline's steps,
// if it did. The ordinary boundary after the baseline gives the same number without a flip: the machine's noise.
#pragma once

#include <cstddef>
#include <vector>

namespace bascule::bench {

struct Elapsed {  // of one thread
  double wall_seconds = 0, cpu_seconds = 0;
};

struct Boundary {
  bool flipped = false;
  Elapsed commit, step;  // inside commit(), and of the step after it
};

struct Stall {
  Elapsed commit, lost;  // inside commit(), and in the step after it
};

class StallLog {
 public:
  static constexpr std::size_t kBaselineSteps = 8;
  // Steps after a flip until its stall and the ordinary one are known.
  static constexpr std::size_t kStepsToSettle = kBaselineSteps + 2;

  void add(const Boundary& boundary);

  const std::vector<Stall>& flips() const { return flips_; }
  const std::vector<Stall>& ordinary() const { return ordinary_; }
  void clear();

 private:
  std::vector<Boundary> since_flip_;  // begins with the flip; empty before the first flip
  std::vector<Stall> flips_, ordinary_;
};

}  // namespace bascule::bench
