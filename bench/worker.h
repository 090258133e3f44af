// A worker process of the measurements: an engine that reads in place.
//
// It polls commit() as an engine would. An idle engine sleeps until on_pending wakes it (an eventfd that its one loop
// polls beside the driver's socket). A stepping engine repeats three things: it reads its own memory, as attention
// reads its cache, so that weights are cold with or without a flip; it calls commit(), a token boundary; and it reads
// all the weights that it serves. A spinning engine calls commit() without pause.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include <bascule/bench/process.h>
#include <bascule/transport/tensor.h>

namespace bascule::bench {

enum class WorkerMode { kIdle, kStep, kSpin };

struct WorkerOptions {
  std::string endpoint{}, name{};
  std::uint64_t seed = 0;
  DType trainer_dtype = DType::kBF16;    // of the tensors before the cast
  std::uint64_t tensors = 0, bytes = 0;  // what a version must have
  int device = kHost;                    // where the worker reads
  WorkerMode mode = WorkerMode::kIdle;
};

// The program: obeys the driver until the driver hangs up. `arguments` come from command_line().
int run_worker(const std::vector<std::string>& arguments);
std::vector<std::string> command_line(const WorkerOptions& options);

// The driver's side.
class Worker {
 public:
  static absl::StatusOr<Worker> start(const WorkerOptions& options);

  const std::string& name() const { return name_; }
  pid_t pid() const { return process_.pid(); }
  void kill() { process_.kill(); }
  // A call in two halves, so that several workers work at once. An error names the worker.
  absl::Status ask(const nlohmann::json& question);
  absl::StatusOr<nlohmann::json> answer();
  bool has_answered() const { return packets_.has_one(); }
  absl::StatusOr<nlohmann::json> call(const nlohmann::json& question);

 private:
  Worker(std::string name, Process process) : name_(std::move(name)), process_(std::move(process)) {}
  std::string name_;
  Process process_;
  Packets packets_;
};

}  // namespace bascule::bench
