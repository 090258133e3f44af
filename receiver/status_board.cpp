#include <bascule/receiver/status_board.h>

#include <bascule/transport/text.h>

namespace bascule::inline v0 {

void StatusBoard::update(const std::function<void(Posted&)>& change) {
  {
    const std::lock_guard lock(mutex_);
    change(posted_);
  }
  changed_.notify_all();
}

ReceiverStatus StatusBoard::status() const {
  const std::lock_guard lock(mutex_);
  return posted_.status;
}

absl::Status StatusBoard::wait_ready(Deadline deadline, std::string_view worker, std::string_view place) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline.at(), [this] { return posted_.ready || posted_.hopeless; }) && posted_.ready)
    return absl::OkStatus();
  const ReceiverStatus& status = posted_.status;
  if (posted_.hopeless)
    return failed_precondition("worker ", worker, " cannot join the sender at ", place, ": ", message_of(status.error));
  return deadline_exceeded("worker ", worker, ": no version to serve from ", place, " yet; ",
                           !status.error.ok() ? cat("the last error: ", message_of(status.error))
                           : status.attached  ? "connected, the sender has not published"
                                              : "no sender is there");
}

}  // namespace bascule::inline v0
