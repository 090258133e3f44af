// LineEnd: one end of a conversation in lines over a socket. Tests command helper programs with it: a child process
// (the socket is its stdin) or a thread. With a pipe instead, writing to a program that is gone would end the test by
// SIGPIPE.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::test {

class LineEnd {
 public:
  LineEnd() = default;
  explicit LineEnd(UniqueFd socket) : socket_(std::move(socket)) {}

  // Returns two connected sockets.
  static std::pair<UniqueFd, UniqueFd> make_pair();

  // Returns the next line, without its line break; DEADLINE_EXCEEDED if none came, OUT_OF_RANGE if the other end is
  // gone.
  absl::StatusOr<std::string> read(Deadline deadline);
  // Writes a line; it is lost if the reader is gone.
  void write(std::string_view line);

 private:
  UniqueFd socket_;
  std::string buffer_;  // bytes after the last line that was read
};

}  // namespace bascule::test
