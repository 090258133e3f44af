// libbascule_graphs.so: all code that names symbols of libtorch_cuda.so.
#include <ATen/cuda/CUDAGraph.h>

#include <bascule/trainer_ref/graphs/graphs.h>

namespace bascule::ref {
namespace {

// Memory that graphs share. Once all graphs of a pool are gone, LibTorch adds none to it: the next gets a new pool.
struct Pool {
  const at::cuda::MempoolId_t id = at::cuda::graph_pool_handle();
};

class LibTorchGraph final : public Graph {
 public:
  // Thread-local: the receiver's threads continue to call CUDA meanwhile.
  LibTorchGraph(const std::function<void()>& work, std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {
    graph_.capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (const std::exception&) {  // the first error is the informative one
      }
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  const std::shared_ptr<Pool> pool_;
  at::cuda::CUDAGraph graph_;  // gone before the pool is released
};

class LibTorchRecorder final : public GraphRecorder {
 public:
  std::unique_ptr<Graph> record(const std::function<void()>& work) override {
    std::shared_ptr<Pool> pool = pool_.lock();
    if (pool == nullptr) pool_ = pool = std::make_shared<Pool>();
    return std::make_unique<LibTorchGraph>(work, std::move(pool));
  }

 private:
  std::weak_ptr<Pool> pool_;  // of the graphs that live
};

}  // namespace
}  // namespace bascule::ref

extern "C" __attribute__((visibility("default"))) bascule::ref::GraphRecorder* bascule_make_graph_recorder() {
  return new bascule::ref::LibTorchRecorder();  // the caller's unique_ptr takes it
}
