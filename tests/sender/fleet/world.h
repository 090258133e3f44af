// A fleet with in-memory versions of what a coordinator has: connections, a public thread, a scheme, a clock. Actions
// are carried out in order, and answered as actions.h specifies.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/status.h>

namespace bascule::test {

class FleetWorld {
 public:
  static constexpr Epoch kEpoch = 7;
  struct Scheme {
    bool delivers = false, publishes = false, persists = false;
    bool while_written = false;  // its deliveries begin
    std::size_t most_left_behind = 1024;
  };
  struct Peer {  // the other end of a connection
    Hello hello;
    std::deque<Message> said;  // to it, and not read yet
    bool admitted = false;
    std::optional<action::Close> closed;
  };

  explicit FleetWorld(std::string_view options = "", Scheme scheme = {true, false, false, false, 1024});
  virtual ~FleetWorld() = default;

  // Called around each event that the fleet handles; may be null.
  static inline void (*before_event)(const Event&) = nullptr;
  static inline void (*after_event)() = nullptr;
  // Passes the event to the fleet, and carries out the resulting actions.
  void tell(Event event);
  void pass(absl::Duration time);  // with the ticks due by then

  WorkerId greet(Hello hello);
  void say(WorkerId id, Message message) { tell(event::Heard{id, std::move(message)}); }
  void hang_up(WorkerId id) { tell(event::HungUp{id, absl::UnavailableError("the peer hung up")}); }
  bool is_member(WorkerId id) const { return fleet.roster().find(id) != nullptr; }

  // ---- the public thread ----

  void register_layout() { tell(event::LayoutRegistered{std::make_shared<const Layout>(layout)}); }
  void open_slots();
  // Requests a slot, or takes the one ahead; nullopt if it has to wait (`granted`).
  std::optional<Grant> ask(std::vector<std::string> workers = {});
  std::optional<Grant> take_granted();  // with a number, if there is one
  Version announce(const Grant& grant);
  void seal(Version version);
  void abandon(Version version, bool torn = false);
  bool end_loan(Version version);  // false: it lapsed

  // The scheme's work, answered when the test calls these.
  void finish_delivery(absl::Status status = absl::OkStatus());
  void finish_publish(absl::Status status = absl::OkStatus());
  void finish_persist(absl::Status status = absl::OkStatus());

  const Layout layout;
  const Endpoint endpoint;
  const int slots;
  Fleet fleet;
  Clock::time_point now{std::chrono::hours(1)};
  std::map<WorkerId, Peer> peers;
  std::deque<action::Deliver> deliveries;
  std::vector<Ticket> stopped;  // deliveries
  std::deque<action::Publish> publishes;
  std::deque<action::Persist> persists;
  std::optional<SlotId> ahead;
  std::optional<absl::StatusOr<Grant>> granted;
  std::map<Version, absl::StatusOr<SendReport>> settled;
  std::vector<SlotId> dropped;
  std::vector<Holder> closed_leases;
  std::optional<Version> may_write;
  std::optional<Clock::time_point> wakes_at;
  std::vector<std::string> log, warnings;          // log: all lines
  int failing_admissions = 0, failing_offers = 0;  // how many of the next ones fail
  bool delivers_at_once = true;
  // Messages that wait in sockets until they are read, each with its sender.
  std::deque<std::pair<WorkerId, Message>> queued;

 protected:
  virtual void carry_out(Action& action);  // a test may override it to watch

 private:
  void do_it(action::Say& say);
  void do_it(action::Admit& admit);
  void do_it(action::Offer& offer);
  void do_it(action::Close& close) { peers.at(close.id).closed = close; }
  void do_it(action::CloseLeases& leases) { closed_leases.push_back(leases.holder); }
  void do_it(action::ReadQueued& read);
  void do_it(action::Deliver& deliver);
  void do_it(action::StopDelivery& stop) { stopped.push_back(stop.ticket); }
  void do_it(action::Publish& publish) { publishes.push_back(publish); }
  void do_it(action::Persist& persist) { persists.push_back(persist); }
  void do_it(action::GrantSlot& grant) { granted = std::move(grant.grant); }
  void do_it(action::TakeAhead& taken) { ahead = taken.slot; }
  void do_it(action::DropSlot& drop) { dropped.push_back(drop.slot); }
  void do_it(action::MayWrite& may) { may_write = may.version; }
  void do_it(action::EndLoan& end);
  void do_it(action::Settle& settle) { settled.emplace(settle.version, std::move(settle.report)); }
  void do_it(action::NumberAbove& number) { numbers_ = std::max(numbers_, number.version); }
  void do_it(action::WakeAt& wake) { wakes_at = wake.at; }
  void do_it(action::KeepAwake&) {}
  void do_it(action::Log& line) {
    log.push_back(line.line);
    if (line.is_warning) warnings.push_back(line.line);
  }

  static FleetRules rules(std::string_view options, Scheme scheme);
  std::deque<Action> actions_;
  bool carrying_out_ = false;
  WorkerId next_ = 1;
  Version numbers_ = 0;
  Limit asked_{};  // of the announced version
  std::optional<Version> loan_ended_, lapsed_;
  SlotMemory memory_;
};

}  // namespace bascule::test
