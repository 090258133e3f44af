// Ranks: a worker's ranks in communicator groups: one communicator each, from `make` until NCCL has let go of the
// memory that it uses.
//
//   (none) ── expect(), make(), put() ──▶ here ── leave() ──▶ leaving ── end() ──▶ (none)
//
// It sends no messages and has no thread. Every call except make() is under its owner's mutex.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include <bascule/schemes/nccl/communicator.h>
#include <bascule/schemes/nccl/library.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/nccl/place.h>
#include <bascule/transport/deadline.h>

namespace bascule::inline v0::nccl {

class Ranks {
 public:
  // Before any other call. `library` outlives the process's last communicator. `max_ctas`: as of a communicator.
  absl::Status open(const Library& library, std::shared_ptr<Place> place, int max_ctas);

  void expect(CommGroupId group);  // it is made now
  // Joins, by a `make`. Not under the mutex: where no thread can be started, it is made and ended within the call.
  std::unique_ptr<Communicator> make(const GroupMessage& message, Communicator::Handlers handlers) const;
  void put(CommGroupId group, std::unique_ptr<Communicator> communicator);  // goes at once, if it has ended by now

  Communicator* find(CommGroupId group) const;                           // null: it has no rank there, or leaves
  void warm(CommGroupId group, std::function<void(absl::Status)> done);  // nothing, where find() finds none
  bool leave(CommGroupId group);                                         // false: it has no rank there
  void leave_all();
  std::unique_ptr<Communicator> end(CommGroupId group);  // it has ended

  bool empty() const { return joined_.empty(); }
  bool hangs() const;  // an abort of one has not come back, and will not

 private:
  struct Joined {
    std::unique_ptr<Communicator> communicator;
    std::optional<Clock::time_point> leaves;  // since then
  };
  static void leave(Joined& joined);

  const Library* library_ = nullptr;
  std::shared_ptr<Place> place_;
  int max_ctas_ = 0;
  std::shared_ptr<std::byte> scratch_;  // for what carries nothing
  std::map<CommGroupId, Joined> joined_;
};

}  // namespace bascule::inline v0::nccl
