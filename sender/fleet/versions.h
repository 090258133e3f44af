// Versions: every version in flight, each with a ticket and a deadline: the one that the public thread sends, and
// catch-ups. It also tracks which version numbers are used. Pure bookkeeping.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include <bascule/sender/fleet/events.h>
#include <bascule/sender/fleet/round.h>

namespace bascule::inline v0 {

// One version in flight to some workers.
struct InFlightVersion {
  Ticket ticket = 0;
  Round round;
  bool is_catch_up = false;          // false: the public thread sends it
  std::set<WorkerId> leased{};       // of a catch-up: workers whose lease began with it; others keep theirs if it fails
  std::vector<std::string> names{};  // of a send: the names that were requested; empty: all
  std::set<WorkerId> owed{};         // of a send: the workers it is for, in the round or not
  bool written = false;              // the public thread has the slot
  bool moving = false;               // the scheme is moving its bytes
  bool torn = false;                 // an abort leaves a single copy half written

  const Publication& publication() const { return round.publication(); }
  Version version() const { return publication().version; }
};

class Versions {
 public:
  // `published` is the last version of earlier runs, and `used` the highest number known to be used.
  Versions(Version published, Version used) : published_(published), used_(used) {}

  InFlightVersion& begin(Round round, bool is_catch_up);
  void end(Ticket ticket);
  InFlightVersion* find(Ticket ticket);
  InFlightVersion* sent();  // the version that the public thread sends; null if none is under way
  const InFlightVersion* sent() const { return const_cast<Versions*>(this)->sent(); }
  // Returns the version that a member is being sent: its catch-up, or the public thread's; null if there is none.
  InFlightVersion* of(std::optional<Ticket> catch_up) { return catch_up ? find(*catch_up) : sent(); }
  const InFlightVersion* of(std::optional<Ticket> catch_up) const { return const_cast<Versions*>(this)->of(catch_up); }
  std::vector<Ticket> tickets() const;

  // ---- deadlines ----

  // A limit ends at `until`. Returns a time to wake at, unless an earlier wake-up was already requested.
  std::optional<Clock::time_point> wait_until(Clock::time_point until) const;
  void wakes(Clock::time_point at) { wakes_at_ = at; }  // that wake-up was requested
  void woken() { wakes_at_.reset(); }
  std::vector<Ticket> due(Clock::time_point now) const;
  // Returns when to wake up for the next deadline after `now`, unless an earlier wake-up was already requested. Call it
  // once the deadlines that have passed are dealt with.
  std::optional<Clock::time_point> wake_behind(Clock::time_point now) const;

  // ---- deliveries under way, including versions that were given up ----

  // The holder of a delivery's slot. It is close to the maximum, so that no receiver's random number will equal it.
  static Holder deliverer(Ticket ticket) { return ~ticket; }
  bool is_delivery(Holder holder) const { return delivers(~holder); }
  bool delivers(Ticket ticket) const { return delivered_from_.contains(ticket); }
  void begin_delivery(Ticket ticket, SlotId slot) { delivered_from_[ticket] = slot; }
  std::optional<SlotId> end_delivery(Ticket ticket);  // nullopt if it had no delivery under way

  // ---- numbers ----

  Version published() const { return published_; }
  void publish(Version version) { published_ = version; }
  Version used() const { return used_; }
  void use(Version version) { used_ = std::max(used_, version); }
  // The highest version that one greeting may claim, for however many slots. Higher claims are refused: no sender can
  // have come that far, and the numbers must not run out.
  Version most_claimed() const;
  // A worker reports that it has `version`, so the next number will be above it. Returns INVALID_ARGUMENT if `version`
  // is above `most` and not known.
  absl::Status claim(Version version, Version most);

 private:
  Ticket next_ = 1;
  std::map<Ticket, InFlightVersion> under_way_;
  std::map<Ticket, SlotId> delivered_from_;
  std::optional<Ticket> sent_;
  std::optional<Clock::time_point> wakes_at_;
  Version published_, used_;
};

}  // namespace bascule::inline v0
