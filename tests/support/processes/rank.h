// RankProcess: one rank of a sharded trainer in a separate process, for tests that kill or stop it. It has a TestModel,
// of which it sends its part: some tensors are cut by rows, some by columns, some lie on all ranks. It obeys these
// commands, each answered by one line of JSON:
//
//   send FIRST COUNT   steps FIRST, FIRST + 1 …, each with a send, until one fails. A step's number is its generation
//   quit
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "support/processes/child_process.h"
#include "support/processes/line_end.h"
#include "support/processes/trainer.h"

namespace bascule::test {

struct RankArguments {
  std::string endpoint;
  std::uint32_t rank = 0, ranks = 1;
  int doomed_at = 0;  // at this control message, counted from the first, the process gets the signal; 0: at none
  int signal = 0;
  int device = kHost;  // where its tensors lie
};

// Runs the program of that process; returns after `quit`, or when the other end is gone.
int run_rank(const RankArguments& arguments, LineEnd commands);

struct RankAnswer {
  std::string error;  // of registering, or of the last send; empty: OK
  Epoch epoch = 0;    // of the last send that succeeded, like what follows
  Version version = 0;
  std::uint64_t generation = 0;
  int serving = 0;   // workers that serve it
  int messages = 0;  // control messages so far
};

// The test's side.
class RankProcess {
 public:
  explicit RankProcess(const RankArguments& arguments);  // the first answer tells whether it has registered
  void tell(const std::string& command) { process_.lines().write(command); }
  // nullopt: it died, or has given no answer when the deadline passes.
  std::optional<RankAnswer> answer(Deadline deadline);
  ChildProcess& process() { return process_; }

 private:
  ChildProcess process_;
};

}  // namespace bascule::test
