// The rig of a measurement: a sender with a model in this process, and its workers as processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/footprint.h>
#include <bascule/bench/model.h>
#include <bascule/bench/scenario.h>
#include <bascule/bench/worker.h>
#include <bascule/sender/sender.h>

namespace bascule::bench {

struct RigOptions {
  ModelShape model{};
  std::string endpoint_option{};  // "digest=off"; nothing: as --sync says
  int workers = 1;
  int sender_threads = 0;  // 0: as --threads says
  WorkerMode mode = WorkerMode::kIdle;
};

// A timed send.
struct Turn {
  double seconds = 0;
  Stages stages{};
};

// Seconds by stage: wait, pack, deliver, prepare, commit (decision to last ack, without ack), ack (in the slowest
// worker, from hearing of the decision to the flip), with durable=on persist, and threads: what is left of `seconds`.
Stages stages_of(const SendReport& report, double seconds);

class Rig {
 public:
  // Until every worker serves the first version.
  static absl::StatusOr<std::unique_ptr<Rig>> make(Context& context, const RigOptions& options);
  ~Rig();  // workers, then the sender, then the endpoint's folder

  // A step of the model, a send, timed from the call to its return, and a check of every byte by every worker. An error
  // where a worker did not acknowledge, or serves anything else.
  absl::StatusOr<Turn> send();
  absl::Status step() { return model_.step(++generation_); }
  absl::StatusOr<SendReport> send_only();  // without step and check; an error unless complete
  absl::Status check();                    // every worker, what it serves

  Sender& sender() { return *sender_; }
  const Model& model() const { return model_; }
  std::vector<Worker>& workers() { return workers_; }
  // One more, until it serves the next version.
  absl::Status add_worker(const Context& context, const RigOptions& options);
  // The same, while others are sent to: its answer() tells that it serves a version.
  absl::Status begin_to_add_worker(const Context& context, const RigOptions& options);
  void remove_worker(std::size_t which);  // kills it, if it still runs
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  absl::StatusOr<std::vector<nlohmann::json>> ask_all(const nlohmann::json& question);

  // This process's footprint without the slots, as of now beyond what it was before there was a sender.
  absl::StatusOr<Footprint> footprint_now();
  const Footprint& footprint_before() const { return before_; }
  // Of the GPU that the model lies on, taken beside the model and two slots.
  absl::StatusOr<double> gpu_memory_taken() const;

 private:
  explicit Rig(Model model) : model_(std::move(model)) {}
  absl::Status start_worker(const Context& context, const RigOptions& options);

  Model model_;
  std::filesystem::path folder_;
  std::string endpoint_;
  std::optional<Sender> sender_;
  std::vector<Worker> workers_;
  std::vector<int> devices_, left_devices_;  // of the workers, and of those that were removed
  int started_ = 0;                          // workers
  std::uint64_t generation_ = 0, slot_bytes_ = 0;
  Footprint before_;
  std::uint64_t gpu_free_before_ = 0;
  std::set<const void*> slots_;  // an address in each slot that was loaned
};

}  // namespace bascule::bench
