// busy: sends while the engines step without pause and the trainer computes.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <bascule/bench/send_case.h>

namespace bascule::bench {
namespace {

// One thread of a trainer that keeps computing: arithmetic over its own 4 MiB.
class Computing {
 public:
  Computing() : thread_([this] { compute(); }) {}
  ~Computing() {
    stopping_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  void compute() {
    std::vector<float> values(1 << 20, 0.5f);
    while (!stopping_.load(std::memory_order_relaxed))
      for (float& value : values) value = value * 0.999f + 0.001f;
  }
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace

absl::Status run_busy(Context& context) {
  const Options& options = context.options;
  const Computing trainer;
  return measure_sends(context, "busy",
                       {.rig = {.model = {.bytes = options.bytes, .tensors = options.tensors},
                                .workers = options.workers,
                                .mode = WorkerMode::kStep},
                        .repeat = std::max(3, options.repeat / 5),
                        .busy_threads = 1});
}

}  // namespace bascule::bench
