#include <bascule/trainer_ref/grpo/publish.h>

#include <string>
#include <utility>

#include <bascule/transport/text.h>

namespace bascule::ref {

absl::Status PolicySender::before_write() {
  if (!single_copy_ || loan_) return absl::OkStatus();
  absl::StatusOr<WritableSlot> loan = sender_.loan();
  if (!loan.ok()) {
    log_(cat("the engines did not yield; trying once more: ", message_of(loan.status())));
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

absl::StatusOr<SendReport> PolicySender::publish() {
  absl::StatusOr<SendReport> report = publish_once();
  if (!report.ok()) {
    // Nobody flipped, and the next send is another version: trying again repeats nothing.
    log_(cat("a version was not published; trying once more: ", message_of(report.status())));
    report = publish_once();
  }
  if (!report.ok()) return annotate(report.status(), "the weights could not be sent");
  for (const WorkerReport& worker : report->workers)
    if (!worker.error.ok())
      log_(cat("version ", report->version, ": worker ", worker.worker, " ", to_string(worker.state), ": ",
               message_of(worker.error)));
  for (const std::string& warning : report->warnings)
    log_(warning.starts_with("version ") ? warning : cat("version ", report->version, ": ", warning));
  return report;
}

}  // namespace bascule::ref
