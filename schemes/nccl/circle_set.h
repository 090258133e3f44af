// CircleSet: the circles of one sender, from `ask` until they are gone, and the workers that are there. It knows no
// deliveries: what goes through a circle, and what becomes of that, Circles decides (circles.h).
//
// A circle of all workers is made some time behind each change of them; the other circles are made when they are asked
// for. At most one circle warms at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include <bascule/schemes/nccl/circle.h>
#include <bascule/schemes/nccl/events.h>

namespace bascule::inline v0::nccl {

// How long each state may last.
struct CircleLimits {
  absl::Duration ask = absl::Seconds(5);            // for every worker's `ready`
  absl::Duration make = absl::Seconds(10);          // for every rank of a new communicator
  absl::Duration leave = absl::Seconds(10);         // for an abort; beyond it the process is poisoned
  absl::Duration run_out = absl::Seconds(5);        // for the pieces of a version that was given up
  absl::Duration gather = absl::Milliseconds(100);  // workers that join together are made one circle
  int tries = 3;  // of one delivery, in a new circle each; and of one worker, to be made
};

class CircleSet {
 public:
  using State = Circle::State;
  struct Load {
    bool waits = false;  // a delivery, for this circle
    bool going = false;  // a broadcast of a delivery, in any circle
  };

  CircleSet(const CircleLimits& limits, Turn& turn) : limits_(limits), turn_(turn) {}  // both outlive it

  // ---- events ----

  void join(WorkerId worker);
  void remove(WorkerId worker);
  void heard(WorkerId worker, Word word);                                  // of a circle
  void own_end(CircleId circle, State state, const absl::Status& status);  // what that state waits for
  void own_left(CircleId circle);
  void end_waits();  // of states that lasted too long

  // ---- what follows ----

  Circle& ask(std::vector<WorkerId> workers);  // for a new one
  bool move_on(Circle& circle, Load load);     // true: it is in another state
  void leave(Circle& circle, std::string why);
  Circle take_out(CircleId circle);              // that is left and complete
  void want_one_of_all_in(absl::Duration time);  // at the latest
  void make_one_of_all();                        // once it is time
  void drop_spares();                            // no delivery is under way
  void use(Circle& circle) { circle.use(++uses_); }

  // ---- what it knows ----

  Circle* find(CircleId circle);
  Circle* cover(const std::set<WorkerId>& workers, bool runs);  // the largest of some of these; `runs`: already
  bool has(WorkerId worker) const { return workers_.contains(worker); }
  bool any(State state) const;
  std::vector<CircleId> ids() const;
  std::size_t size() const { return circles_.size(); }
  std::map<State, int> states() const;
  const absl::Status& usable() const { return usable_; }  // FAILED_PRECONDITION: this process is poisoned
  // Whether a circle can be made; those that run go on where none can.
  const absl::Status& can_make() const { return usable_.ok() ? makes_ : usable_; }
  void served(WorkerId worker) { strikes_.erase(worker); }  // it has got a version
  std::optional<Clock::time_point> next_deadline() const;

 private:
  void broken(WorkerId worker, Circle& circle, const std::string& why);
  void give_up_late(Circle& circle, std::string_view what, absl::Duration limit);
  void end(absl::Status& what, absl::Status why);

  const CircleLimits& limits_;
  Turn& turn_;
  CircleId next_ = 1;
  std::uint64_t uses_ = 0;
  std::map<CircleId, Circle> circles_;
  std::set<WorkerId> workers_;  // that are there
  // How often in a row a worker broke a circle, before it ran or alone in it; until it gets a version.
  std::map<WorkerId, int> strikes_;
  std::optional<Clock::time_point> gathers_until_;
  absl::Status usable_, makes_;
};

}  // namespace bascule::inline v0::nccl
