// Computes steps with the weights that are served. All calls come from the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/trainer_ref/engine/schedule/step.h>
#include <bascule/transport/version.h>

namespace bascule::ref {

// Which weights the next step will use.
struct Served {
  bool ready = false;    // there are weights, and they may be served
  bool changed = false;  // this call changed them
  bool pending = false;  // commit() has work: a version, or a single copy to be written; set by look() alone
  Epoch epoch = 0;
  Version version = 0;      // 0: a checkpoint's own
  bool attached = false;    // a sender is connected
  absl::Status error = {};  // why it is not ready, if known
  // Of an adapter, whose sources are counted from 1: the one of these weights, and one that never can be served, which
  // `error` is about; 0: none.
  std::uint64_t source = 0, refused = 0;
};

// An adapter's weights, opened by an AdapterLoader for the runner that uses them.
class AdapterWeights {
 public:
  virtual ~AdapterWeights() = default;
};

// What an adapter's next rows will use.
struct ServedAdapter {
  AdapterId id = kNoAdapter;
  Served served = {};
};

// Steps that were replayed as graphs of a GPU.
struct GraphCounts {
  std::uint64_t recorded = 0, replayed = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Flips to pending versions, of the model and of adapters, at a token boundary. Blocks only with a single copy, while
  // it is written. Returns what is served of the model; adapters() tells the rest.
  virtual Served commit() = 0;
  // Returns what is served, and whether it may still be served, without a flip. `pending` includes adapters. Does not
  // block.
  virtual Served look() = 0;
  // Begins to compute `step`. Its sequences must not change until this returns.
  virtual void start(const Step& step) = 0;
  // Finishes the oldest step that was started, and returns an output for each row. After an error, neither its outputs
  // nor those that later steps return can be trusted.
  // DATA_LOSS: with these weights, the logits are not numbers.
  virtual absl::StatusOr<std::vector<RowOutput>> finish() = 0;
  // Whether a second step, which uses tokens that the first one draws, may be started before the first is finished. If
  // not, start() itself may compute.
  virtual bool runs_ahead() const { return false; }
  absl::StatusOr<std::vector<RowOutput>> run(const Step& step) {
    start(step);
    return finish();
  }

  // Adds an adapter, or gives it other weights. The next commit() begins to serve them. RESOURCE_EXHAUSTED says that
  // there is no room for another one; INVALID_ARGUMENT, why these weights cannot be used.
  virtual absl::Status set_adapter(AdapterId /*id*/, std::unique_ptr<AdapterWeights> /*weights*/) {
    return absl::UnimplementedError("this engine serves no adapters");
  }
  // Call it when no row uses the adapter any more.
  virtual void remove_adapter(AdapterId /*id*/) {}
  // All adapters, as the last commit() left them; `changed` tells what it changed. Valid until the next call.
  virtual std::span<const ServedAdapter> adapters() const { return {}; }

  // Called while nothing runs: frees the memory that only steps need, above all the cache, whose contents are lost.
  // Weights stay, and commit() continues to flip. No step may start until wake_up() has returned OK.
  virtual absl::Status sleep() = 0;
  // Returns UNAVAILABLE and stays asleep if there is not enough memory.
  virtual absl::Status wake_up() = 0;

  virtual GraphCounts graphs() const { return {}; }
};

}  // namespace bascule::ref
