#include <bascule/receiver/status_board.h>

#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

ReceiverStatus StatusBoard::status() const {
  const std::lock_guard lock(mutex_);
  ReceiverStatus status = posted_.status;
  status.error = printable(status.error);  // it may have names that the sender chose
  return status;
}

absl::Status StatusBoard::wait_ready(Version least, Deadline deadline, std::string_view worker,
                                     std::string_view place) {
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return posted_.ready && posted_.newest >= least; };
  changed_.wait_until(lock, deadline.at(), [&] { return is_there() || posted_.hopeless; });
  if (is_there()) return absl::OkStatus();
  const ReceiverStatus& status = posted_.status;
  const std::string error = printable(message_of(status.error));
  if (posted_.hopeless)
    return failed_precondition("worker ", worker, " cannot join the sender at ", place, ": ", error);
  return deadline_exceeded("worker ", worker, ": no version ", least > 0 ? cat("(", least, " or newer) ") : "",
                           "to serve from ", place, " yet; ",
                           !status.error.ok()   ? cat("the last error: ", error)
                           : posted_.newest > 0 ? cat("the newest is ", posted_.newest)
                           : status.attached    ? "connected, the sender has not published"
                           : posted_.greeted    ? "a sender was greeted, and has not published since"
                                                : "no sender is there");
}

}  // namespace bascule::inline v0
