// The publisher of --sync=none: it writes a checkpoint, and restarts the engines with it. Slower by orders of magnitude
// than sending, and kept for comparison, and for weights that must pass through a folder.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/publisher.h>

namespace bascule::ref {

struct RestartOptions {
  std::filesystem::path folder = {};  // for the checkpoints: one at a time, removed with the publisher
  std::filesystem::path model = {};   // the folder that has the config and the tokenizer
  DType dtype = DType::kF32;          // of the checkpoint of a whole model
  // Ends the engines that run, starts them with the checkpoint in `folder`, and returns their URLs. Blocks until they
  // listen, which they do once they have read it.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::filesystem::path& folder)> restart = {};
};

class EngineRestarts final : public Publisher {
 public:
  // `policy`: whole, or with an adapter, which alone is written then.
  EngineRestarts(RestartOptions options, Policy policy);
  ~EngineRestarts() override;

  absl::StatusOr<std::vector<std::string>> meet(const Meeting& meeting) override;
  // The first call, after meet(), has nothing to do. In the report, `pack` is the checkpoint's time, and
  // `deliver` the restart's.
  absl::StatusOr<SendReport> publish(Weights weights) override;

 private:
  absl::StatusOr<std::vector<std::string>> restart();
  std::filesystem::path checkpoint(std::int64_t number) const;
  void remove_checkpoints() const;

  const RestartOptions options_;
  const Policy policy_;
  std::int64_t written_ = 0;  // checkpoints
  SendReport report_;         // of the newest
  bool is_new_ = false;       // publish() has not returned it yet
};

}  // namespace bascule::ref
