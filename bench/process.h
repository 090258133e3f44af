// A process of this program in another role ("bascule-bench worker …"). Its stdin is a socket for packets of JSON; the
// process ends when the other end is gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/deadline.h>
#include <bascule/transport/posix/unique_fd.h>

namespace bascule::bench {

// One end of a packet connection: SOCK_SEQPACKET keeps messages separate.
class Packets {
 public:
  Packets() = default;
  explicit Packets(UniqueFd socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.get(); }
  absl::Status send(const nlohmann::json& message);
  // Returns DEADLINE_EXCEEDED if no message came, OUT_OF_RANGE if the other end is gone.
  absl::StatusOr<nlohmann::json> receive(Deadline deadline);
  bool has_one() const;  // true if receive() would not wait: a message came, or the other end is gone

 private:
  UniqueFd socket_;
};

class Process {
 public:
  // Starts this program with `arguments`; its stdin is a socket of `type` (SOCK_SEQPACKET, SOCK_STREAM).
  static absl::StatusOr<Process> start(std::vector<std::string> arguments, int type);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  // hangs up; kills it if it does not end within a second

  pid_t pid() const { return pid_; }
  void kill();                                           // kills it, and waits until it is gone
  UniqueFd take_socket() { return std::move(socket_); }  // closing it hangs up

 private:
  Process() = default;
  pid_t pid_ = -1;
  UniqueFd socket_;
};

}  // namespace bascule::bench
