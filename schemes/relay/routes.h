// Routes: from which source each worker copies each version. A pure state machine: an event goes in, actions come out.
// schemes/relay/README.md draws it.
//
// A delivery has a leg for each worker that copies. A leg's source is the trainer, or an engine that has the version or
// is getting it. If a source leaves, its readers continue from that source's own source.
//
// Of the workers on one GPU, the first shows receive buffers, and the others share them: they are never a source, and
// copy only if the first does not get the version. If the first leaves, the next one is told to show buffers. If the
// first comes back with its buffers, it is told to hide them.
//
//   leg:  waiting ──the worker says how it reads──▶ incoming ──got──▶ got
//                                                     │
//                                                 over ▼ stopped
//                                                  stopping ──left──▶ gone
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <bascule/schemes/deliveries/events.h>
#include <bascule/schemes/relay/messages.h>
#include <bascule/schemes/relay/options.h>
#include <bascule/transport/endpoint.h>

namespace bascule::inline v0::relay {

namespace event {

using namespace schemes::event;
using Heard = schemes::event::Heard<RelayMessage>;

}  // namespace event

using Event = std::variant<event::Joined, event::Removed, event::Heard, event::Wanted, event::Stopped>;

namespace action {

using namespace schemes::action;
using Say = schemes::action::Say<RelayMessage>;
using Deliver = schemes::action::Deliver<RelayMessage>;
struct Introduce {  // sends the `engine` message, with the buffers that the engine shows
  WorkerId worker = 0;
  SourceId engine = kTrainer;
};

}  // namespace action

using Action = std::variant<action::Say, action::Introduce, action::Deliver, action::GiveUp, action::Done>;

class Routes {
 public:
  explicit Routes(RelayShape shape) : shape_(shape) {}

  std::vector<Action> on(const Event& event);
  // An introduction could not be carried out: the worker is introduced again when it is sent to that engine.
  void not_introduced(WorkerId worker, SourceId engine);

  // ---- what it knows, for tests and texts ----

  // Returns the source from which the worker copies that version now; nullopt if it does not copy it.
  std::optional<SourceId> source_of(WorkerId worker, Version version) const;
  std::string_view path_of(WorkerId worker) const;  // "in place" or "relay"; empty: not known yet
  std::size_t deliveries() const { return deliveries_.size(); }

 private:
  struct Member {
    enum class Reads { kCopies, kShares, kUnknown, kInPlace };
    Reads reads = Reads::kUnknown;
    std::optional<std::string> place{};  // the GPU on which it reads, once it has said so
    bool told_to_show = false, cannot_show = false;
    bool told_of_others = false;    // that they share its buffers
    Version told = 0;               // the last version that was delivered to it
    std::uint64_t delivery = 0;     // by this delivery
    bool has_it = false;            // it has all of that version
    bool alone = false;             // no other engine can see its copy, or it shares another engine's
    std::vector<SourceId> knows{};  // engines that it was introduced to
  };
  struct Leg {
    enum class State { kWaiting, kIncoming, kStopping, kGot };
    WorkerId worker = 0;
    State state = State::kWaiting;
    SourceId source = kTrainer;
    std::vector<SourceId> former{};  // earlier sources, which it may still read

    bool may_read(SourceId engine) const;
  };
  struct Delivery {
    Version version = 0;
    std::vector<Leg> legs;  // in the order of the route: a source's leg comes before its readers' legs
    bool stopped = false;
  };

  void note(const event::Joined& joined);
  void note(const event::Removed& removed);
  void note(const event::Heard& heard);
  void note(const event::Wanted& wanted);
  void note(const event::Stopped& stopped);
  void learn(WorkerId worker, Member::Reads reads);
  void note_buffers(WorkerId worker, const RelayMessage& message);
  WorkerId owner_of(const std::optional<std::string>& place) const;
  void give_roles(const std::optional<std::string>& place);
  void leave(std::uint64_t number, WorkerId worker);
  void start(std::uint64_t number, Delivery& delivery, Leg& leg);
  void go_on(std::uint64_t number, Delivery& delivery, Leg& leg, SourceId from);
  void redirect(std::uint64_t number, Delivery& delivery, SourceId gone, SourceId to);
  void end_where_all_have_it(std::uint64_t number);
  void introduce(WorkerId worker, SourceId engine);
  SourceId choose(const Delivery& delivery, const Leg& leg) const;
  SourceId to_share(const Delivery& delivery, const Member& member) const;
  bool can_serve(SourceId source, const Delivery& delivery) const;
  bool has_all(SourceId source, Version version) const;
  std::size_t readers(SourceId source) const;
  std::vector<Version> spared(WorkerId worker) const;
  Leg* find(Delivery& delivery, WorkerId worker);

  const RelayShape shape_;
  std::map<WorkerId, Member> members_;
  std::map<std::uint64_t, Delivery> deliveries_;  // under way
  Turn<Action> turn_;
};

}  // namespace bascule::inline v0::relay
