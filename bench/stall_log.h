// The engine's stall at a flip, from its token boundaries: what commit() took and what the step after it lost to first
// touches, against steps that follow.
//
//   boundary   flip    1 … 8      9
//   step       first   baseline   ordinary
//
// A stall is the time inside commit() plus what the step after it lost: the time beyond the median of the baseline's
// steps, or nothing where it took less. The ordinary boundary after the baseline gives the same number where there was
// no flip: the noise of the machine.
#pragma once

#include <cstddef>
#include <vector>

namespace bascule::bench {

struct Elapsed {  // of one thread
  double wall_seconds = 0, cpu_seconds = 0;
};

struct Boundary {
  bool flipped = false;
  Elapsed commit, step;  // inside commit(), and of the step behind it
};

struct Stall {
  Elapsed commit, lost;  // inside commit(), and by the step after it
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
  std::vector<Boundary> since_flip_;  // the flip first; empty before the first
  std::vector<Stall> flips_, ordinary_;
};

}  // namespace bascule::bench
