// The rig of a measurement: a sender with a model in this process, and its workers as processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/bench/footprint.h>
#include <bascule/bench/model.h>
#include <bascule/bench/other_ranks.h>
#include <bascule/bench/scenario.h>
#include <bascule/bench/worker.h>
#include <bascule/sender/sender.h>

namespace bascule::bench {

struct RigOptions {
  ModelShape model{};
  std::string endpoint_option{};  // "digest=off"; empty: as in --sync
  int workers = 1;
  int sender_threads = 0;  // of each rank; 0: as in --threads
  std::size_t ranks = 1;   // more: each has its shard of every tensor, and a thread of this process
  WorkerMode mode = WorkerMode::kIdle;
};

// A timed send.
struct Turn {
  double seconds = 0;
  Stages stages{};
};

// Returns the seconds of each stage: wait, pack, deliver, prepare, commit (from the decision to the last ack, without
// the stage ack), ack (in the slowest worker, from receiving `decided` to the flip), persist (only with durable=on) and
// threads (the rest of `seconds`).
Stages stages_of(const SendReport& report, double seconds);

class Rig {
 public:
  // Returns once every worker serves the first version.
  static absl::StatusOr<std::unique_ptr<Rig>> make(Context& context, const RigOptions& options);
  ~Rig();  // ends the workers, then the sender, then removes the endpoint's folder

  // Makes a step of the model and a send, timed from call to return; then every worker checks every byte. Returns an
  // error if a worker did not acknowledge, or serves anything else.
  absl::StatusOr<Turn> send();
  absl::Status step() { return model_.step(++generation_); }
  absl::StatusOr<SendReport> send_only();  // without step and check; returns an error if the send is not complete
  absl::Status check();                    // every worker checks its bytes

  Sender& sender() { return *sender_; }
  const Model& model() const { return model_; }
  std::vector<Worker>& workers() { return workers_; }
  // Adds a worker; returns once it serves the next version.
  absl::Status add_worker(const Context& context, const RigOptions& options);
  // Like add_worker(), but does not wait, so sends can go on. The worker answers once it serves a version.
  absl::Status begin_to_add_worker(const Context& context, const RigOptions& options);
  void remove_worker(std::size_t which);  // kills it if it still runs
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  absl::StatusOr<std::vector<nlohmann::json>> ask_all(const nlohmann::json& question);

  // Returns how much this process's footprint, without slots, has grown since before the sender was made.
  absl::StatusOr<Footprint> footprint_now();
  const Footprint& footprint_before() const { return before_; }
  // Returns how much memory is taken on the model's GPU, beyond the model and two slots.
  absl::StatusOr<double> gpu_memory_taken() const;

 private:
  explicit Rig(Model model) : model_(std::move(model)) {}
  absl::Status start_worker(const Context& context, const RigOptions& options);
  absl::Status start_ranks(const SenderOptions& options, std::size_t ranks);
  absl::StatusOr<SendReport> send_on_all_ranks();

  Model model_;
  std::filesystem::path folder_;
  std::string endpoint_;
  std::optional<Sender> sender_;
  OtherRanks ranks_;
  std::vector<Worker> workers_;
  std::vector<int> devices_, left_devices_;  // the workers' devices, and the removed workers'
  int started_ = 0;                          // how many workers were started
  std::uint64_t generation_ = 0, slot_bytes_ = 0;
  Footprint before_;
  std::uint64_t gpu_free_before_ = 0;
  std::set<const void*> slots_;  // an address in each loaned slot
};

}  // namespace bascule::bench
