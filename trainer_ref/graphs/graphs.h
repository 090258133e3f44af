// Work on a GPU that is recorded once and then replayed as a whole: one launch instead of hundreds.
//
// LibTorch's graphs live in libtorch_cuda.so, which no program links. Code that names them is in libbascule_graphs.so,
// opened at run time through this interface. Only the thread that computes may use it.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"

namespace bascule::ref {

class Graph {
 public:
  virtual ~Graph() = default;
  // Runs on the calling thread's current stream, without waiting. The memory that the work uses must still be there.
  virtual void replay() = 0;
};

class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  // Calls `work` and records what it launches on the current stream, which is not the default one, without running it.
  // `work` must neither wait nor read a result, and must have run before. All graphs of a recorder share the memory
  // between their steps, so copy a result elsewhere before the next replay. Exceptions of LibTorch and `work` pass
  // through.
  virtual std::unique_ptr<Graph> record(const std::function<void()>& work) = 0;
};

// Call it after open_torch_device() has opened a GPU. UNAVAILABLE says why this build has no recorder or cannot open
// it.
absl::StatusOr<std::unique_ptr<GraphRecorder>> open_graph_recorder();

}  // namespace bascule::ref
