// LineEnd: one end of a conversation in lines, over a socket. What tests command helper programs by: a child whose
// stdin it is, or a thread. (Not over pipes: a program that is gone would end the test by SIGPIPE.)
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

  // Two sockets that talk to each other.
  static std::pair<UniqueFd, UniqueFd> make_pair();

  // The next line, without its end. DEADLINE_EXCEEDED: none came; OUT_OF_RANGE: the other end is gone.
  absl::StatusOr<std::string> read(Deadline deadline);
  // Writes a line; what a reader that is gone would have got is lost.
  void write(std::string_view line);

 private:
  UniqueFd socket_;
  std::string buffer_;  // bytes after the last line that was read
};

}  // namespace bascule::test
