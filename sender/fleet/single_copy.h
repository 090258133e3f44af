// SingleCopy: the loan of a single copy (slots=1). The trainer writes the memory that engines read, so writing waits
// until every reader has yielded, and readers wait for the writer for at most loan_timeout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/fleet/books.h>

namespace bascule::inline v0 {

// The error for a loan that exceeded loan_timeout.
absl::Status loan_lapsed(const Endpoint& endpoint, Version version);

class SingleCopy {
 public:
  explicit SingleCopy(Books& books) : books_(books) {}

  std::optional<Grant> take();  // returns the slot, if every reader takes part in the loan
  // FAILED_PRECONDITION names the workers that read the slot in place and are not `addressed`: they would never yield.
  absl::Status check(const std::vector<WorkerId>& addressed) const;
  // Lets the public thread write once every worker has yielded and no other holder is left.
  void let_write(InFlightVersion& sent, FleetTurn& turn);
  // Ends a loan whose deadline has passed at `at`: it was kept too long, or a reader did not yield.
  void judge(Clock::time_point at, FleetTurn& turn);
  void note(event::LoanEnded& ended, FleetTurn& turn);

  // For error texts: the readers that would not yield, because they left or are about to read.
  std::string readers() const;

 private:
  std::vector<Holder> in_the_way(const InFlightVersion& sent);
  void ask_those_that_came_back(InFlightVersion& sent, FleetTurn& turn);

  Books& books_;
  Version came_back_ = 0;  // the version whose loan came back in time, and which will be sealed or abandoned
};

}  // namespace bascule::inline v0
