// Progress: moves a version in flight from the seal to the last ack. Its Round decides what is due, and this class does
// it. When the version ends, it lets catch-ups and the waiting writer go on.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/fleet/books.h>
#include <bascule/sender/fleet/catch_ups.h>

namespace bascule::inline v0 {

class Progress {
 public:
  Progress(Books& books, CatchUps& catch_ups) : books_(books), catch_ups_(catch_ups) {}

  void note(event::SlotSealed& sealed, FleetTurn& turn);
  void note(event::Abandoned& abandoned, FleetTurn& turn);
  void note(event::Delivered& delivered, FleetTurn& turn);
  void note(event::Published& published, FleetTurn& turn);
  void note(event::Persisted& persisted, FleetTurn& turn);

  // Does what the version's round requests, until it requests nothing.
  void advance(InFlightVersion& version, FleetTurn& turn);

 private:
  bool act(Round::Action action, InFlightVersion& version, FleetTurn& turn);  // returns false if nothing more is due
  void announce(InFlightVersion& version, FleetTurn& turn);
  void deliver(InFlightVersion& version, FleetTurn& turn);
  void decide(InFlightVersion& version, FleetTurn& turn);
  void decided(InFlightVersion& version, const absl::Status& status, FleetTurn& turn);
  void tell_decided(InFlightVersion& version, FleetTurn& turn);
  void settle(const InFlightVersion& sent, FleetTurn& turn);
  SendReport report_of(const InFlightVersion& sent) const;
  void finish_abort(const InFlightVersion& sent, FleetTurn& turn);
  void end(const InFlightVersion& sent, absl::StatusOr<SendReport> report, FleetTurn last, FleetTurn& turn);
  void expect_release(const InFlightVersion& sent, const std::vector<WorkerId>& workers);

  Books& books_;
  CatchUps& catch_ups_;
};

}  // namespace bascule::inline v0
