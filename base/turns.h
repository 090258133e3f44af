// Turns: two locks in an endpoint's folder, by which the processes that share a base agree who makes it.
//
//   base.opening   exclusive, while a process opens the base: they take turns
//   base.open      shared, by every process that has it open; exclusive: no process has it; its content is the key
//
// The kernel releases both with the process. Any one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/fork_guard.h>

namespace bascule::inline v0 {

class Turns {
 public:
  // Makes the folder if it is missing. `example` is as for make_private_folder().
  static absl::StatusOr<Turns> in(const std::filesystem::path& folder, std::string_view example);

  // Waits for the turn. DEADLINE_EXCEEDED: another process still opens the base; CANCELLED: `interrupted`.
  absl::Status begin(Deadline deadline, const std::function<bool()>& interrupted);
  // During the turn: whether no other process has the base open.
  absl::StatusOr<bool> is_first();
  // During the turn: writes the base's key, by the process that makes it, and reads it.
  absl::Status store_key(std::string_view key);
  absl::StatusOr<std::string> key() const;
  // During the turn: from now on this process has the base open, for as long as this object lives.
  absl::Status keep();
  void end();

 private:
  std::filesystem::path folder_;
  ProcessFd opening_, open_;
  bool kept_ = false;
};

}  // namespace bascule::inline v0
