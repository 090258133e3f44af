// Circles: which communicators there are at the sender, of which workers, and what goes through each. A pure state
// machine: an event goes in, actions come out, and time is an argument. docs/nccl.md has its table of states.
//
// A circle is one communicator: the sender is rank 0, and its workers are the others. A delivery goes to its workers by
// the circles that cover them; what no circle covers gets one of its own. So a worker that joins is served at once by a
// circle of two, while the others go on by theirs; the circle of all is made behind, and takes over when it is warm.
//
//   Circles     deliveries: which part goes through which circle, and where it goes on if a circle is left
//   CircleSet   the circles: asked for, made, warmed, left; the workers that are there; the circle of all
//   Circle      the state of one, and whom it waits for
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/circle_set.h>
#include <bascule/schemes/nccl/events.h>
#include <bascule/schemes/nccl/words.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0::nccl {

class Circles {
 public:
  using State = Circle::State;

  Circles(CircleLimits limits, std::uint64_t piece_bytes)
      : limits_(limits), piece_bytes_(piece_bytes), circles_(limits_, turn_) {}
  Circles(const Circles&) = delete;
  Circles& operator=(const Circles&) = delete;

  std::vector<Action> on(Event event, Clock::time_point now);

  // ---- what it knows, for tests and texts ----

  std::map<State, int> states() const { return circles_.states(); }
  bool poisoned() const { return !circles_.usable().ok(); }
  std::size_t deliveries() const { return deliveries_.size(); }

 private:
  struct Part {  // of a delivery: what goes through one circle
    CircleId circle = 0;
    std::uint64_t from = 0;
    bool going = false, sent = false;
    std::set<WorkerId> awaited;  // that have not got it
  };
  struct Delivery {
    std::uint64_t number = 0;
    Version version = 0;
    std::vector<Part> parts;
    std::set<WorkerId> told;        // by a deliver message
    int tries = 0;                  // circles of several that broke
    std::map<WorkerId, int> alone;  // circles of one that broke
    std::set<WorkerId> served;      // that have got it
    bool stopped = false;
    std::optional<Clock::time_point> until;  // stopped: its pieces run out
    absl::Status why;                        // it cannot be
  };

  void note(event::Joined& joined) { circles_.join(joined.worker); }
  void note(event::Removed& removed);
  void note(event::Heard& heard);
  void note(event::Wanted& wanted);
  void note(event::Stopped& stopped);
  void note(event::Made& made) { circles_.own_end(made.circle, State::kMaking, made.status); }
  void note(event::Warmed& warmed) { circles_.own_end(warmed.circle, State::kWarming, warmed.status); }
  void note(event::Sent& sent);
  void note(event::Left& left) { circles_.own_left(left.circle); }
  void note(event::Tick& tick);

  void work();  // until nothing follows any more
  bool move_on(Circle& circle);
  void plan(Delivery& delivery, std::set<WorkerId> workers, std::uint64_t from);
  void start_parts();
  void begin(Delivery& delivery, Part& part);
  void needs_no_more(WorkerId worker, Delivery& delivery, bool failed);
  void go_on_elsewhere(const Circle& left);
  void go_on(Delivery& delivery, const Part& part, const Circle& left);
  bool breaks_too_often(Delivery& delivery, const Circle& left);
  void stop(Delivery& delivery, absl::Status why, bool whole);
  void finish_deliveries();
  bool waits_for(CircleId circle) const;  // a delivery, or one is under way there
  bool going() const;                     // a broadcast of a delivery, in any circle
  std::optional<Clock::time_point> next_deadline() const;

  const CircleLimits limits_;
  const std::uint64_t piece_bytes_;
  Turn turn_;
  CircleSet circles_;
  std::map<std::uint64_t, Delivery> deliveries_;  // in the order in which they were wanted
  std::optional<Clock::time_point> wakes_at_;
};

}  // namespace bascule::inline v0::nccl
