// How the policy becomes versions that engines serve.
//
//   slots=2 or more    step ──▶ publish(): packs the weights into a slot; if that fails, once more
//   slots=1            gradients ──▶ before_write(): engines yield ──▶ optimizer.step() ──▶ publish(): engines go on
//
// With slots=1 the policy's tensors are the slot (a single copy). A loan lets the optimizer write them: from the first
// before_write() of an update to its publish(), loan_timeout at most. If the trainer dies in between, engines know that
// what they read may be half written, and serve nothing until the next version.
//
// Threads: one.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/sender/sender.h>
#include <bascule/trainer_ref/grpo/learn/policy.h>

namespace bascule::ref {

class PolicySender {
 public:
  // Listens, and registers the policy's tensors themselves: what the optimizer writes is what the next version has.
  // options.log is told of what failed and is tried again, too, and of workers that did not take a version. Errors: as
  // Sender::listen() and register_model().
  static absl::StatusOr<PolicySender> open(const SenderOptions& options, const Policy& policy);

  Sender& sender() { return sender_; }

  // Before the weights change. Does nothing but with a single copy, whose loan is not out: then it blocks until all
  // engines have yielded, for twice the endpoint's timeout at most. An error: some engine may still read; it is named.
  absl::Status before_write();

  // Makes a version of the weights as they are. Blocks for twice the endpoint's timeout at most. That they are those of
  // the version before is worth a line of the log where they should have changed.
  enum class Weights { kChanged, kMayBeTheSame };
  absl::StatusOr<SendReport> publish(Weights weights = Weights::kChanged);

  // Gives up the loan of an update that failed, so that engines wait no longer. They serve the version before if
  // nothing was written, else nothing until the next one.
  void give_up() { loan_.reset(); }

 private:
  PolicySender(Sender sender, bool single_copy, std::function<void(std::string_view)> log)
      : sender_(std::move(sender)), single_copy_(single_copy), log_(std::move(log)) {}
  absl::StatusOr<SendReport> publish_once();

  Sender sender_;
  const bool single_copy_;
  std::function<void(std::string_view)> log_;
  std::optional<WritableSlot> loan_;  // before sender_ in destruction
};

}  // namespace bascule::ref
