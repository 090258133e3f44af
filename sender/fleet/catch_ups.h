// CatchUps: brings the newest version to workers that have an older one, in a separate round for each worker, or for
// the ranks of each group.
#pragma once

#include <optional>
#include <set>

#include <bascule/sender/fleet/books.h>

namespace bascule::inline v0 {

class CatchUps {
 public:
  explicit CatchUps(Books& books) : books_(books) {}

  // ---- workers to look at: they may need the newest version ----

  void look_at(WorkerId id) { waiting_.insert(id); }
  void look_at_all();                    // all workers that are due a newer version
  std::optional<WorkerId> next() const;  // the first on the list
  void looked_at(WorkerId id) { waiting_.erase(id); }

  // ---- their versions ----

  // If the member needs one now; includes its group's ranks. If there is no memory, nothing has begun.
  void begin(Member& member, FleetTurn& turn);
  void end(const InFlightVersion& version, FleetTurn& turn);  // `version` settled, was aborted or has no worker left
  // Gives up catch-ups that only hold an older version's slot, because their workers have no room for it yet. Their
  // workers get the newest version instead.
  void give_up_idle(FleetTurn& turn);

 private:
  void start(const std::vector<Member*>& ranks, InFlightVersion& version, FleetTurn& turn);

  Books& books_;
  std::set<WorkerId> waiting_;
};

}  // namespace bascule::inline v0
