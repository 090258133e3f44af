// The publisher that sends the policy's weights by Bascule's transport.
//
//   slots=2 or more    step ──▶ publish(): packs the weights into a slot; retries once if that fails
//   slots=1            gradients ──▶ before_write(): engines yield ──▶ optimizer.step() ──▶ publish(): engines go on
//
// With slots=1 the policy's tensors are the slot (a single copy). A loan lets the optimizer write them from the first
// before_write() of an update to its publish(), for at most loan_timeout. If the trainer dies in between, engines know
// that the weights may be half written, and serve nothing until the next version.
//
// Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>
#include <bascule/trainer_ref/grpo/options/train_flags.h>
#include <bascule/trainer_ref/grpo/publisher.h>

namespace bascule::ref {

class PolicySender final : public Publisher {
 public:
  // Listens, and registers the policy's own tensors, not copies: a version contains what the optimizer last wrote to
  // them. options.log also gets failures that are retried, and workers that did not take a version. Returns the errors
  // of Sender::listen() and register_model().
  // `sync` says what is sent of a policy with an adapter.
  static absl::StatusOr<std::unique_ptr<PolicySender>> open(SenderOptions options, const Policy& policy,
                                                            LoraSync sync = LoraSync::kAdapters);

  absl::StatusOr<std::vector<std::string>> meet(const Meeting& meeting) override;

  // With a single copy, takes the loan, unless this update has it already: blocks
  // until all engines have yielded, for at most twice the endpoint's timeout. The error names an engine that may still
  // be reading.
  absl::Status before_write() override;

  // Publishes the weights as a new version. Blocks for at most twice the endpoint's timeout. If `weights` is kChanged
  // but the bytes equal the previous version's, logs that.
  absl::StatusOr<SendReport> publish(Weights weights) override;

  // Gives up the loan of an update that failed, so that engines stop waiting. If nothing was written, they serve the
  // previous version; otherwise they serve nothing until the next one.
  void give_up() override { loan_.reset(); }

 private:
  PolicySender(Sender sender, bool single_copy, std::function<void(std::string_view)> log)
      : sender_(std::move(sender)), single_copy_(single_copy), log_(std::move(log)) {}
  absl::StatusOr<SendReport> publish_once();

  Sender sender_;
  const bool single_copy_;
  std::function<void(std::string_view)> log_;
  std::optional<WritableSlot> loan_;  // destroyed before sender_
};

}  // namespace bascule::ref
