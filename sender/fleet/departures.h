// Departures: ends memberships, and with them their parts in versions in flight, leases and groups.
//
// A departing member waits in a list until let_leave(), so that nothing calls back into itself: the end of one member
// may end its group, and a version's progress may end a member.
#pragma once

#include <deque>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/sender/fleet/books.h>

namespace bascule::inline v0 {

class Departures {
 public:
  explicit Departures(Books& books) : books_(books) {}

  void note(event::HungUp& hung_up, FleetTurn& turn);
  void note(event::GivenUp& given_up, FleetTurn& turn);
  void note(event::HolderGone& gone, FleetTurn& turn);
  void note(event::LeftRunning& left, FleetTurn& turn);

  // Does nothing for a member that is already departing or gone.
  void evict(WorkerId id, const absl::Status& why);
  // It said goodbye. Without a reason it leaves as intended, and the log's line about it is no warning.
  void said_goodbye(WorkerId id, std::string_view why);
  // Ends a member that was not welcomed. With `final`, the worker is told that trying again is useless.
  void refuse(Member& member, const absl::Status& why, bool final);
  // Evicts the member, and records it as poisoned until it serves again. `final` means that it has lost its device.
  void poison(Member& member, std::string_view why, bool final);
  // Ends all departing members. Call it before any version continues: a group must not be told to flip without its lost
  // rank.
  void let_leave(FleetTurn& turn);

 private:
  struct Departure {
    WorkerId id = 0;
    absl::Status why;
    bool final = false;
    bool intended = false;
  };
  void leave(const Departure& departure, FleetTurn& turn);
  void leave_leases(const Member& member, FleetTurn& turn);
  void drop_lease(const Member& member, const InFlightVersion& version);
  void leave_group(const Member& member, const absl::Status& why);
  void leave_round(const Member& member, const absl::Status& why, InFlightVersion* version, FleetTurn& turn);

  Books& books_;
  std::deque<Departure> waiting_;
};

}  // namespace bascule::inline v0
