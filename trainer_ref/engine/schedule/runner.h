// The runner: computes a step with the weights that are served. All calls come from the engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/schedule/step.h>
#include <bascule/transport/version.h>

namespace bascule::ref {

// Which weights the next step will use.
struct Served {
  bool ready = false;    // there are weights, and they may be served
  bool changed = false;  // by this call
  bool pending = false;  // commit() has work: a version, or a single copy that is to be written; look() alone says it
  Epoch epoch = 0;
  Version version = 0;      // 0: a checkpoint's own
  bool attached = false;    // a sender is connected
  absl::Status error = {};  // why it is not ready, where that is known
};

// Of steps that were replayed as graphs of a GPU.
struct GraphCounts {
  std::uint64_t recorded = 0, replayed = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // At a token boundary: flips to a version that is pending. Blocks only beside a single copy, while it is written.
  virtual Served commit() = 0;
  // What is served, and whether it still may be, without a flip. Does not block.
  virtual Served look() = 0;
  // Begins to compute `step`, whose sequences stay as they are until this returns.
  virtual void start(const Step& step) = 0;
  // Of the oldest step that was started: an output for each row. An error means that none can be trusted, nor those of
  // a step behind it.
  virtual absl::StatusOr<std::vector<RowOutput>> finish() = 0;
  // Whether one more step, with tokens that the first draws, may be started before that one is finished. Else start()
  // itself may compute.
  virtual bool runs_ahead() const { return false; }
  absl::StatusOr<std::vector<RowOutput>> run(const Step& step) {
    start(step);
    return finish();
  }

  // Nothing runs: gives back the memory that only steps need, the cache above all. Weights stay, and commit() goes on
  // flipping. No run() until wake_up() was OK; what the cache held is gone.
  virtual absl::Status sleep() = 0;
  // UNAVAILABLE: there is not the memory. Still asleep then.
  virtual absl::Status wake_up() = 0;

  virtual GraphCounts graphs() const { return {}; }
};

}  // namespace bascule::ref
