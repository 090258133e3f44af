#include <bascule/trainer_ref/grpo/publish.h>

#include <string>
#include <utility>

#include <bascule/trainer_ref/grpo/adapter_source.h>
#include <bascule/trainer_ref/grpo/engine_start.h>
#include <bascule/trainer_ref/model/decoder_weights.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Puts the tensors that engines on GPUs fuse side by side: a single copy's layout is final before any engine could
// request that.
std::unique_ptr<TensorSource> source_of(const Policy& policy, LoraSync sync) {
  if (policy.adapter() && sync == LoraSync::kAdapters) return adapter_source(*policy.adapter());
  WeightMap left = policy.weights();
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const JoinedWeights& joined : joined_weights(policy.config()))
    for (const std::string& part : joined.parts) {
      tensors.emplace_back(part, left.at(part));
      left.erase(part);
    }
  tensors.insert(tensors.end(), left.begin(), left.end());
  return policy.adapter() ? merged_source(std::move(tensors), *policy.adapter())
                          : libtorch::tensors(std::move(tensors));
}

// Merged weights travel as F32, like a trainer's own, unless the endpoint says otherwise: frozen ones may be BF16, and
// rounding the sum to that would lose small updates.
absl::StatusOr<std::string> endpoint_of(const std::string& text, const Policy& policy, LoraSync sync) {
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(text));
  if (!policy.adapter() || sync == LoraSync::kAdapters || endpoint.wire_dtype) return text;
  return cat(text, text.find('?') == std::string::npos ? "?" : "&", "wire_dtype=f32");
}

}  // namespace

absl::StatusOr<std::unique_ptr<PolicySender>> PolicySender::open(SenderOptions options, const Policy& policy,
                                                                 LoraSync sync) {
  BASCULE_ASSIGN(options.endpoint, endpoint_of(options.endpoint, policy, sync));
  std::string description;
  if (policy.adapter() && sync == LoraSync::kAdapters)
    description = describe_adapter(policy.adapter()->lora, policy.adapter()->module_names(), policy.config());
  BASCULE_ASSIGN(Sender sender, Sender::listen(options));
  BASCULE_TRY(sender.register_model(source_of(policy, sync), std::move(description)));
  return std::unique_ptr<PolicySender>(
      new PolicySender(std::move(sender), is_single_copy(options.endpoint), options.log));
}

absl::StatusOr<std::vector<std::string>> PolicySender::meet(const Meeting& meeting) {
  BASCULE_TRY(wait_for_engines(sender_, meeting.urls, meeting.flag, meeting.timeout, meeting.stopped));
  return meeting.urls;
}

absl::Status PolicySender::before_write() {
  if (!single_copy_ || loan_) return absl::OkStatus();
  absl::StatusOr<WritableSlot> loan = sender_.loan();
  if (!loan.ok()) {
    log_(cat("the engines did not yield; trying again: ", message_of(loan.status())));
    loan = sender_.loan();
  }
  if (!loan.ok()) return annotate(loan.status(), "the weights cannot be written while engines read them");
  loan_ = *std::move(loan);
  return absl::OkStatus();
}

absl::StatusOr<SendReport> PolicySender::publish_once() {
  if (!single_copy_) return sender_.send();
  BASCULE_TRY(before_write());
  return sender_.publish(*std::exchange(loan_, std::nullopt));
}

absl::StatusOr<SendReport> PolicySender::publish(Weights weights) {
  absl::StatusOr<SendReport> report = publish_once();
  if (!report.ok()) {
    // No engine flipped, and the next send is another version, so a retry repeats nothing.
    log_(cat("a version was not published; trying again: ", message_of(report.status())));
    report = publish_once();
  }
  if (!report.ok()) return annotate(report.status(), "the weights could not be sent");
  for (const WorkerReport& worker : report->workers)
    if (!worker.error.ok())
      log_(cat("version ", report->version, ": worker ", worker.worker, " ", to_string(worker.state), ": ",
               message_of(worker.error)));
  for (const std::string& warning : report->warnings)
    if (weights == Weights::kChanged || warning.find(kSameBytes) == std::string::npos)
      log_(warning.starts_with("version ") ? warning : cat("version ", report->version, ": ", warning));
  return report;
}

}  // namespace bascule::ref
