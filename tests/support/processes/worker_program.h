// What a worker of the tests does: it holds a Receiver and obeys commands, each answered by one line of JSON.
//
//   run             commit and check the weights, again and again
//   step            commit and check once
//   follow V        commit(V), as a rank above 0, and check
//   join            join(), and nothing else
//   take            take() once, and check
//   finish          finish() what was taken
//   fail            finish() it with an error
//   hold            check what is served, commit nothing
//   pause           neither
//   ready MS V      wait_ready for so long, for a version from V on
//   report          what it served, and the first thing that was wrong
//   fault HOOK N    of a fake scheme: the next N calls of HOOK fail
//   die N           by SIGKILL, at the N-th control message from now
//   lose            lose the device to this process; commits from then on, and checks nothing more
//   quit
//
// "Check" means: every tensor of the slot that is served is of one generation, versions only grow, and a slot's
// views stay where they were. The first thing that is not so stands in "wrong" for good.
#pragma once

#include <optional>
#include <string>

#include "support/processes/line_end.h"
#include "support/test_model.h"
#include <bascule/transport/target.h>

namespace bascule::inline v0 {
struct Scheme;
}

namespace bascule::test {

struct WorkerArguments {
  std::string endpoint;
  std::string name;
  ModelSize model = ModelSize::kSmall;
  std::string group{};  // with its rank among `ranks`
  std::uint32_t rank = 0, ranks = 1;
  std::optional<Apply> copies{};   // into tensors of its own; none: it reads in place
  int device = kHost;              // on which it reads, or has its tensors
  const Scheme* scheme = nullptr;  // in a thread: used instead of the registry's
};

// Until `quit`, or until the other end is gone. The exit status.
int run_worker(const WorkerArguments& arguments, LineEnd commands);

}  // namespace bascule::test
