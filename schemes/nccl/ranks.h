// Ranks: a worker's ranks in communicator groups. Each rank has one communicator, from `make` until NCCL no longer uses
// that communicator's memory.
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
  // Call it before any other. `library` must outlive the process's last communicator. `max_ctas` is the communicators'
  // option.
  absl::Status open(const Library& library, std::shared_ptr<Place> place, int max_ctas);

  void expect(CommGroupId group);  // announces make() for this group
  // Joins the group of a `make` message. Call it without the mutex: if no thread can be started, `made` and `ended` run
  // within the call.
  std::unique_ptr<Communicator> make(const GroupMessage& message, Communicator::Handlers handlers) const;
  void put(CommGroupId group, std::unique_ptr<Communicator> communicator);  // dropped at once if it has ended

  Communicator* find(CommGroupId group) const;                           // null if it has no rank there, or is leaving
  void warm(CommGroupId group, std::function<void(absl::Status)> done);  // does nothing if find() returns null
  bool leave(CommGroupId group);                                         // returns false if it has no rank there
  void leave_all();
  std::unique_ptr<Communicator> end(CommGroupId group);  // call it once the communicator has ended

  bool empty() const { return joined_.empty(); }
  bool hangs() const;  // whether an abort has not returned, and will not

 private:
  struct Joined {
    std::unique_ptr<Communicator> communicator;
    std::optional<Clock::time_point> leaves;  // when it began to leave
  };
  static void leave(Joined& joined);

  const Library* library_ = nullptr;
  std::shared_ptr<Place> place_;
  int max_ctas_ = 0;
  std::shared_ptr<std::byte> scratch_;  // for broadcasts without data
  std::map<CommGroupId, Joined> joined_;
};

}  // namespace bascule::inline v0::nccl
