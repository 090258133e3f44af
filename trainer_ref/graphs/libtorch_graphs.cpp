// libbascule_graphs.so: all that names symbols of libtorch_cuda.so.
#include <ATen/cuda/CUDAGraph.h>

#include "trainer_ref/graphs/graphs.h"

namespace bascule::ref {
namespace {

class LibTorchGraph final : public Graph {
 public:
  // Thread-local: the receiver's threads go on calling CUDA meanwhile.
  LibTorchGraph(const std::function<void()>& work, at::cuda::MempoolId_t pool) {
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const std::exception&) {  // the first error is the one that tells
      }
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class LibTorchRecorder final : public GraphRecorder {
 public:
  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    return std::make_unique<LibTorchGraph>(work, pool_);
  }

 private:
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace
}  // namespace bascule::ref

extern "C" __attribute__((visibility("default"))) bascule::ref::GraphRecorder* bascule_make_graph_recorder() {
  return new bascule::ref::LibTorchRecorder();  // the caller's unique_ptr takes it
}
