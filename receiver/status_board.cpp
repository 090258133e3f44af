#include <bascule/receiver/status_board.h>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {

ReceiverStatus StatusBoard::status() const {
  const std::lock_guard lock(mutex_);
  return posted_.status;
}

absl::Status StatusBoard::wait_ready(Version least, Deadline deadline, std::string_view worker,
                                     std::string_view place) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return posted_.ready && posted_.newest >= least; };
  changed_.wait_until(lock, deadline.at(), [&] { return is_there() || posted_.hopeless; });
  if (is_there()) return absl::OkStatus();
  const ReceiverStatus& status = posted_.status;
  if (posted_.hopeless)
    return failed_precondition("worker ", worker, " cannot join the sender at ", place, ": ", message_of(status.error));
  return deadline_exceeded("worker ", worker, ": no version ", least > 0 ? cat("(", least, " or newer) ") : "",
                           "to serve from ", place, " yet; ",
                           !status.error.ok()   ? cat("the last error: ", message_of(status.error))
                           : posted_.newest > 0 ? cat("the newest is ", posted_.newest)
                           : status.attached    ? "connected, the sender has not published"
                           : posted_.greeted    ? "a sender was greeted, and has not published since"
                                                : "no sender is there");
}

}  // namespace bascule::inline v0
