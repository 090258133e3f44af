#include <bascule/trainer_ref/grpo/publish.h>

#include <string>

#include <bascule/transport/text.h>

namespace bascule::ref {

absl::StatusOr<SendReport> publish_weights(Sender& sender, const std::function<void(std::string_view)>& log) {
  absl::StatusOr<SendReport> report = sender.send();
  if (!report.ok()) {
    // Nobody flipped, and the next send is another version: trying again repeats nothing.
    log(cat("a version was not published; trying once more: ", message_of(report.status())));
    report = sender.send();
  }
  if (!report.ok()) return annotate(report.status(), "the weights could not be sent");
  for (const WorkerReport& worker : report->workers)
    if (!worker.error.ok())
      log(cat("version ", report->version, ": worker ", worker.worker, " ", to_string(worker.state), ": ",
              message_of(worker.error)));
  for (const std::string& warning : report->warnings)
    log(warning.starts_with("version ") ? warning : cat("version ", report->version, ": ", warning));
  return report;
}

}  // namespace bascule::ref
