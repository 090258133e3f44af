// How a step's weights reach the engines. Three ways:
//
//   publish.h      sends them by Bascule's transport
//   restarts.h     writes a checkpoint, and restarts the engines with it (--sync=none)
//   own_engine.h   moves nothing: this process generates with the trainer's own weights (--engines=none)
//
// Threads: one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include <bascule/sender/report.h>

namespace bascule::ref {

// What a publisher needs to meet its engines.
struct Meeting {
  std::vector<std::string> urls = {};  // of engines that exist already
  std::string flag = {};               // by which they follow this run, for errors
  absl::Duration timeout = {};         // until they are there
  std::function<bool()> stopped = {};
};

class Publisher {
 public:
  virtual ~Publisher() = default;

  // Blocks until there are engines that serve what is published, or until stopped, and returns their URLs.
  virtual absl::StatusOr<std::vector<std::string>> meet(const Meeting& meeting) = 0;

  // Call this before the weights change: blocks until no engine reads them.
  virtual absl::Status before_write() { return absl::OkStatus(); }

  // Makes the engines serve the weights as they are now. The report's epoch is 0 if no sender is involved.
  enum class Weights { kChanged, kMayBeTheSame };
  virtual absl::StatusOr<SendReport> publish(Weights weights) = 0;

  // Call this if an update failed after before_write().
  virtual void give_up() {}
};

}  // namespace bascule::ref
