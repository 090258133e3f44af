// Circles: which communicators there are at the sender, of which workers, and what goes through each. A pure state
// machine: an event goes in, actions come out, and time is an argument. docs/nccl.md has its table of states.
//
// A circle is one communicator: the sender is rank 0, and its workers are the others. A delivery goes to its workers by
// the circles that cover them; what no circle covers gets one of its own. So a worker that joins is served at once by a
// circle of two, while the others go on by theirs; the circle of all is made behind, and takes over when it is warm.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/words.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

namespace event {

struct Joined {  // a worker to whom slots were offered
  WorkerId worker = 0;
};
struct Removed {
  WorkerId worker = 0;
};
struct Heard {
  WorkerId worker = 0;
  Word word;
};
struct Wanted {  // a delivery
  std::uint64_t number = 0;
  Version version = 0;
  std::vector<WorkerId> workers;
};
struct Stopped {  // it is wanted no more. `whole`: nothing more is to be written, so it is stuck
  std::uint64_t number = 0;
  bool whole = false;
};

// ---- of the sender's own end ----

struct Made {  // its rank of a circle, or why not
  CircleId circle = 0;
  absl::Status status;
};
struct Warmed {
  CircleId circle = 0;
  absl::Status status;
};
struct Sent {  // its part of a broadcast
  CircleId circle = 0;
  std::uint64_t number = 0;
  absl::Status status;
};
struct Left {  // its rank of a circle is no more
  CircleId circle = 0;
};
struct Tick {};

}  // namespace event

using Event = std::variant<event::Joined, event::Removed, event::Heard, event::Wanted, event::Stopped, event::Made,
                           event::Warmed, event::Sent, event::Left, event::Tick>;

namespace action {

struct Say {
  WorkerId worker = 0;
  Word word;
};
struct Deliver {  // by a deliver message of that version
  WorkerId worker = 0;
  Version version = 0;
  Word word;
};
struct GiveUp {
  WorkerId worker = 0;
  absl::Status why;
};
struct Make {  // draws an id, joins as rank 0, and says `make` to these, as ranks 1 and up; answered by Made
  CircleId circle = 0;
  std::vector<WorkerId> workers;
};
struct Warm {  // answered by Warmed
  CircleId circle = 0;
};
struct Broadcast {  // answered by Sent
  CircleId circle = 0;
  std::uint64_t number = 0, from = 0;
};
struct RunOut {  // what of this delivery is not written goes out as it lies
  std::uint64_t number = 0;
};
struct Leave {  // answered by Left
  CircleId circle = 0;
};
struct Done {
  std::uint64_t number = 0;
  absl::Status status;
};
struct WakeAt {  // answered by Tick
  Clock::time_point at;
};
struct Log {
  std::string line;
};

}  // namespace action

using Action = std::variant<action::Say, action::Deliver, action::GiveUp, action::Make, action::Warm, action::Broadcast,
                            action::RunOut, action::Leave, action::Done, action::WakeAt, action::Log>;

// How long each state may last.
struct CircleLimits {
  absl::Duration ask = absl::Seconds(5);            // for every worker's `ready`
  absl::Duration make = absl::Seconds(10);          // for every rank of a new communicator
  absl::Duration leave = absl::Seconds(10);         // for an abort; beyond it the process is poisoned
  absl::Duration run_out = absl::Seconds(5);        // for the pieces of a version that was given up
  absl::Duration gather = absl::Milliseconds(100);  // workers that join together are made one circle
  int tries = 3;  // of one delivery, in a new circle each; and of one worker, to be made
};

class Circles {
 public:
  enum class State { kAsking, kMaking, kMade, kWarming, kRunning, kLeaving };

  Circles(CircleLimits limits, std::uint64_t piece_bytes) : limits_(limits), piece_bytes_(piece_bytes) {}

  std::vector<Action> on(Event event, Clock::time_point now);

  // ---- what it knows, for tests and texts ----

  std::map<State, int> states() const;
  bool poisoned() const { return poisoned_; }
  std::size_t deliveries() const { return deliveries_.size(); }

 private:
  struct Circle {
    CircleId id = 0;
    State state = State::kAsking;
    std::vector<WorkerId> workers;  // rank 1 and up; also those that are gone
    std::set<WorkerId> awaited;     // in this state
    bool own_awaited = false;       // likewise, this end
    bool begun = false;             // this end has a rank of it
    bool bereft = false;            // a worker of it is gone
    std::map<WorkerId, Word> left;  // what they said of what was under way
    Clock::time_point until;
    std::uint64_t used = 0;  // grows with each use of any
    std::string why;         // it is left
  };
  struct Part {  // of a delivery: what goes through one circle
    CircleId circle = 0;
    std::uint64_t from = 0;
    bool going = false, sent = false;
    std::set<WorkerId> awaited;  // that have not got it
  };
  struct Delivery {
    std::uint64_t number = 0;
    Version version = 0;
    std::vector<WorkerId> workers;
    std::vector<Part> parts;
    std::set<WorkerId> told;  // by a deliver message
    int tries = 0;
    bool stopped = false;
    std::optional<Clock::time_point> until;  // stopped: its pieces run out
    absl::Status why;                        // it cannot be
  };

  void note(event::Joined& joined);
  void note(event::Removed& removed);
  void note(event::Heard& heard);
  void note(event::Wanted& wanted);
  void note(event::Stopped& stopped);
  void note(event::Made& made);
  void note(event::Warmed& warmed);
  void note(event::Sent& sent);
  void note(event::Left& left);
  void note(event::Tick& tick);

  void work();  // until nothing follows any more
  void plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from);
  Circle& ask(std::vector<WorkerId> workers);
  bool move_on(Circle& circle);
  void leave(Circle& circle, std::string why);
  void forget(CircleId id);  // it was left: what went through it goes elsewhere
  void start_parts();
  void finish_deliveries();
  void stop(Delivery& delivery, absl::Status why, bool whole);
  void make_one_of_all();
  void needs_no_more(WorkerId worker, Delivery& delivery, bool failed);
  void broken(WorkerId worker, Circle& circle, const std::string& why);
  Circle* find(CircleId id);
  Circle* cover(const std::set<WorkerId>& workers, bool runs);  // the largest of some of these; `runs`: already
  bool in_use(CircleId id) const;
  bool is_of_all(const Circle& circle) const;
  void drop_spares();
  bool any(State state) const;
  bool going() const;
  template <typename Which>
  void act(Which action) {
    actions_.emplace_back(std::in_place_type<Which>, std::move(action));
  }
  void say(WorkerId worker, Word word) { act(action::Say{.worker = worker, .word = std::move(word)}); }
  std::optional<Clock::time_point> next_deadline() const;

  const CircleLimits limits_;
  const std::uint64_t piece_bytes_;
  CircleId next_ = 1;
  std::uint64_t uses_ = 0;
  std::map<CircleId, Circle> circles_;
  std::map<std::uint64_t, Delivery> deliveries_;  // in the order in which they were wanted
  std::set<WorkerId> workers_;                    // that are there
  std::map<WorkerId, int> strikes_;               // how often in a row a worker broke a circle before it ran
  std::optional<Clock::time_point> gathers_until_;
  std::optional<Clock::time_point> wakes_at_;
  bool poisoned_ = false;
  Clock::time_point now_;
  std::vector<Action> actions_;
};

}  // namespace bascule::inline v0::nccl
