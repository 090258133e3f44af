// PendingBell: the eventfd of Receiver::pending_fd(), readable while the gate has something for the engine. Not
// thread-safe: FlipGate calls it with its mutex held.
#pragma once

#include "absl/status/statusor.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::inline v0 {

class PendingBell {
 public:
  absl::StatusOr<int> descriptor();  // made at the first call
  void set(bool readable);

 private:
  UniqueFd descriptor_;
  bool readable_ = false;  // as last set, even before there is a descriptor
};

}  // namespace bascule::inline v0
