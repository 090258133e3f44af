// World: the real Fleet on a virtual clock, with its surroundings: a trainer that sends versions one after the other,
// engines, control connections, and a scheme whose delivery is a Transfer.
//
//   Fleet ── actions ──▶ World ──┬──▶ Wire ──▶ Engine
//     ▲                          └──▶ Transfer ──▶ Links         all on one Agenda
//     └───────── events ─────────────────┘
//
// A death has two parts: the engine falls silent, and later the nodes below it on the route and the sender notice.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "simulator/engine.h"
#include "simulator/outcome.h"
#include <bascule/sender/fleet/fleet.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/layout.h>

namespace bascule::simulator {

// Runs `settings.versions` sends. The same settings give the same outcome. INVALID_ARGUMENT: Endpoint::parse() refuses
// the endpoint options. INTERNAL: the control plane stopped, with no event left.
absl::StatusOr<Outcome> simulate(const Settings& settings);
// OK if simulate() would take them.
absl::Status check_endpoint_options(std::string_view options);

class World {
 public:
  World(const Settings& settings, const Endpoint& endpoint, Layout layout);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  absl::StatusOr<Outcome> run();

 private:
  struct Delivery {
    std::unique_ptr<Transfer> transfer;
    Ticket ticket = 0;
    Version version = 0;
    std::vector<WorkerId> to;
    Time began;
    bool answered = false;
  };

  // The fleet (world.cpp)
  void tell(Event event);
  void do_it(action::Say& say);
  void do_it(action::Admit& admit);
  void do_it(action::Offer& offer);
  void do_it(action::Close& close);
  void do_it(action::ReadQueued& read);
  void do_it(action::Deliver& deliver);
  void do_it(action::StopDelivery& stop);
  void do_it(action::Publish& publish) { tell(event::Published{publish.ticket, absl::OkStatus(), {}}); }
  void do_it(action::Persist& persist) { tell(event::Persisted{persist.ticket, absl::OkStatus()}); }
  void do_it(action::GrantSlot& grant);
  void do_it(action::TakeAhead& taken) { ahead_ = taken.slot; }
  void do_it(action::DropSlot&) {}
  void do_it(action::CloseLeases&) {}
  void do_it(action::MayWrite&) {}
  void do_it(action::EndLoan& end) { tell(event::LoanEnded{end.version, true}); }
  void do_it(action::Settle& settle);
  void do_it(action::NumberAbove&) {}
  void do_it(action::WakeAt& wake);
  void do_it(action::KeepAwake&) {}
  void do_it(action::Log&) {}
  void answer(std::size_t delivery, absl::Status status);

  // The trainer (world_trainer.cpp)
  void begin_send();
  void write(Grant grant);
  void record(Version version, const absl::StatusOr<SendReport>& report);

  // Engines (world_engines.cpp)
  void start_engines();
  void engine_hears(WorkerId id, const Message& message);
  void die_sometimes();
  void die(Node node, bool silent);
  void end_is_noticed(Node node);
  bool lives(Node node) const { return engines_[static_cast<std::size_t>(node)].lives; }
  static std::string name_of_engine(Node node);

  struct Simulated {
    Engine engine;
    bool lives = true;
  };

  const Settings settings_;
  const Endpoint endpoint_;
  const Layout layout_;
  Agenda agenda_;
  Links links_;
  Fleet fleet_;
  Wire wire_;
  Deaths deaths_;
  std::vector<Simulated> engines_;   // by node; the first is unused
  std::deque<Delivery> deliveries_;  // all of them: the agenda refers to them
  std::deque<Action> actions_;
  bool carrying_out_ = false;
  SlotMemory memory_;
  std::optional<SlotId> ahead_;
  std::optional<Time> wakes_at_;
  int welcomed_ = 0;
  Version last_version_ = 0;
  Time send_began_;
  bool done_ = false;
  Outcome outcome_;
};

}  // namespace bascule::simulator
