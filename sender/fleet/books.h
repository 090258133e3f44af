// Books holds the members, slots and versions that the parts of the fleet share, and queues messages about them to
// workers. FleetTurn collects the consequences of one event.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <bascule/sender/expected_workers.h>
#include <bascule/sender/fleet/actions.h>
#include <bascule/sender/fleet/attendance.h>
#include <bascule/sender/fleet/roster.h>
#include <bascule/sender/fleet/slot_allocator.h>
#include <bascule/sender/fleet/versions.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/turn.h>

namespace bascule::inline v0 {

struct FleetRules {
  Endpoint endpoint;                // for its options
  std::string compatibility_key{};  // empty: none
  ExpectedWorkers expected{};
  Epoch epoch = 0;
  Version published = 0;                                       // the last version of earlier runs
  Version used = 0;                                            // the highest number known to be used
  bool delivers = false, publishes = false, persists = false;  // what the scheme does itself
  bool delivers_while_written = false;                         // the scheme's deliveries begin with the first bytes
  bool fresh_slots = false;                                    // KeptSlots::fresh_slots()
  std::size_t most_left_behind = 1024;                         // holders whose lease pipes are watched after they left
};

// Everything put here is handled before the turn ends (Fleet::work).
struct FleetTurn : Turn<Action> {
  std::set<Ticket> going_on{};  // versions that may take their next step
  bool writer_waits = false;    // a slot may have become free, or a reader may have yielded
  bool newcomers_wait = false;  // for a layout or slots, which have come

  // A line about a peer, which can cause it again and again; and a line about this sender itself.
  void log(std::string line) { act(action::Log{.line = std::move(line), .by_peer = true}); }
  void warn(std::string line) { act(action::Log{.line = std::move(line), .is_warning = true, .by_peer = true}); }
  void warn_of_sender(std::string line) { act(action::Log{.line = std::move(line), .is_warning = true}); }
};

struct Books {
  explicit Books(FleetRules rules);
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // Sends a message to the workers in `to` that are still members.
  void say(std::vector<WorkerId> to, Message message, FleetTurn& turn) const;
  // Leases the slot to workers and tells them. Workers that know the slot all get one message; each of the others also
  // gets an offer. If there is no memory, none is told, but some may have the lease.
  void tell_prepare(const std::vector<Member*>& members, const Publication& publication, FleetTurn& turn);
  // The version's current step has this limit.
  void limit(InFlightVersion& version, const Limit& limit, FleetTurn& turn);
  // Extends the limit for a step that begins only now, because it had to wait for other workers.
  void leave_time(InFlightVersion& version, FleetTurn& turn);
  void wake_at(Clock::time_point at, FleetTurn& turn);  // a limit ends then
  // Whether bytes leave while a version is written; if so, it should be written in pieces.
  bool writes_in_pieces() const { return rules.delivers_while_written || roster.copied_behind(); }

  // Whether a worker that is alone can be told of the decision with the seal: nothing but that worker is asked before
  // it, neither the scheme nor, with a single copy, the trainer. And it verifies soon: it does not read all bytes.
  bool decides_ahead() const {
    return !rules.delivers && !rules.publishes && !slots.single_copy() && endpoint.digest != DigestMode::kAlways;
  }

  // Adds a warning to the next report, which has a limit: workers can come and go any number of times between two
  // sends.
  void warn(std::string warning);
  std::vector<std::string> warnings() const;
  void reported() { warnings_.clear(), warnings_left_out_ = 0; }  // warnings() are in a report now

  const FleetRules rules;
  const Endpoint& endpoint = rules.endpoint;
  Roster roster;
  Attendance attendance;
  Versions versions;
  SlotAllocator slots;
  SharedLayout layout{};           // null before register_model()
  EncodedLayout encoded_layout{};  // for every welcome and status
  bool some_left_out = false;      // the last version was not for all workers

 private:
  LeaseNumber last_lease_ = 0;
  std::vector<std::string> warnings_{};  // for the next report
  std::size_t warnings_left_out_ = 0;
};

}  // namespace bascule::inline v0
