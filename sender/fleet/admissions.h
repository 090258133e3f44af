// Admissions: turns connections into members; handles greetings, refusals and welcomes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/sender/fleet/books.h>
#include <bascule/sender/fleet/catch_ups.h>
#include <bascule/sender/fleet/departures.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

class Admissions {
 public:
  Admissions(Books& books, Departures& departures, CatchUps& catch_ups)
      : books_(books), departures_(departures), catch_ups_(catch_ups) {}

  void note(event::ConnectionRefused& refused, FleetTurn& turn);
  void note(event::Greeted& greeted, FleetTurn& turn);
  void note(event::LayoutRegistered& registered, FleetTurn& turn);
  void note(event::SlotsOpened& opened, FleetTurn& turn);
  void note(event::Admitted& admitted, FleetTurn& turn);
  void note(event::Offered& offered, FleetTurn& turn);

  // After a layout is registered or slots are opened: lets the newcomers that waited for that go on.
  void go_on(FleetTurn& turn);
  // Takes a message from a worker that waits for its welcome.
  void hear(Member& member, const Message& message, FleetTurn& turn);

  // Why the last worker was refused, for error texts; empty if none was.
  const std::string& last_refusal() const { return last_refusal_; }
  void refused(std::string_view why) { last_refusal_ = printable(why); }  // `why` may have names that a peer chose

 private:
  absl::Status check_compatibility_key(const Hello& hello) const;
  // A worker reports that it has `version`, so the next number will be above it. `most` is as in Versions::claim().
  absl::Status claim(Version version, Version most, FleetTurn& turn);
  void consider(Member& member, FleetTurn& turn);  // refuses or welcomes the member, or leaves it parked
  absl::Status compare(const Hello& hello);        // compares the tensors that it expects with the layout
  void welcome(Member& member, FleetTurn& turn);
  void turn_away(WorkerId id, const absl::Status& why, FleetTurn& turn);  // a connection that is no member
  void refuse(Member& member, const absl::Status& why);                   // a member that is not welcomed

  Books& books_;
  Departures& departures_;
  CatchUps& catch_ups_;
  struct Compared {
    SharedSpecs expected;
    bool casts = false;
    absl::Status fits;
  };
  std::optional<Compared> compared_;  // the last comparison
  std::string last_refusal_;
};

}  // namespace bascule::inline v0
