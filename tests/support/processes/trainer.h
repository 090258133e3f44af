// Trainer: a sender in a separate process, for tests that kill it. It listens, registers a TestModel, and obeys these
// commands, each answered by one line of JSON:
//
//   send   a step and a send                       run    sends without a pause, until the next command
//   begin  a step and send_async                   loan   takes a slot and keeps it
//   step   with slots=1: loan, step, publish       fault HOOK N (fake_scheme.h)
//   die N  by SIGKILL, at the N-th control message after this
//   quit
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/processes/child_process.h"
#include "support/processes/line_end.h"
#include <bascule/transport/tensor.h>
#include <bascule/transport/version.h>

namespace bascule::test {

// Runs the program of that process; returns after `quit`, or when the other end is gone. The first generation is
// `generation`, and the tensors lie on `device` (or kHost).
int run_trainer(const std::string& endpoint, std::uint64_t generation, int device, LineEnd commands);

// What a trainer answers.
struct Sent {
  std::string error;  // empty: OK
  Epoch epoch = 0;
  Version version = 0;
  std::uint64_t generation = 0;
  int serving = 0;  // workers that serve it
};

// The test's side.
class Trainer {
 public:
  // The test fails if the trainer cannot listen.
  Trainer(const std::string& endpoint, std::uint64_t generation, int device);
  Sent tell(std::string_view command);                     // the test fails if no answer comes
  std::optional<Sent> try_tell(std::string_view command);  // nullopt if it died, or gave no answer for 2 * patience()
  // Sends until this many workers serve a version; the test fails if the trainer does not answer, or after patience().
  Sent send_until(int serving, std::string_view command = "send");
  ChildProcess& process() { return process_; }

 private:
  ChildProcess process_;
};

}  // namespace bascule::test
