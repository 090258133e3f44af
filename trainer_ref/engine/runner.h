// The runner: computes a step with the weights that are served. All calls come from the engine's thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer_ref/engine/step.h"
#include "transport/version.h"

namespace bascule::ref {

// Which weights the next step will use.
struct Served {
  bool ready = false;    // there are weights, and they may be served
  bool changed = false;  // by this call
  Epoch epoch = 0;
  Version version = 0;    // 0: a checkpoint's own
  bool attached = false;  // a sender is connected
  absl::Status error;     // why it is not ready, where that is known
};

class Runner {
 public:
  virtual ~Runner() = default;
  // At a token boundary: flips to a version that is pending. Never blocks.
  virtual Served commit() = 0;
  // For each row 1 + siblings samples where it samples, none otherwise. An error means that none can be
  // trusted.
  virtual absl::StatusOr<std::vector<std::vector<Sample>>> run(const Step& step) = 0;
};

}  // namespace bascule::ref
