// What a worker of the tests does: it holds a Receiver and obeys commands, each answered by one line of JSON.
//
//   run             commit and check the weights, again and again      hold   check what is served, commit nothing
//   pause           neither                                            step   commit and check once
//   ready MS        wait_ready for so long                             report
//   fault HOOK N    of a fake scheme: the next N calls of HOOK fail    quit
//
// "Check" means: every tensor of the slot that is served is of one generation, versions only grow, and a slot's
// views stay where they were. The first thing that is not so stands in "wrong" for good.
#pragma once

#include <string>

#include "support/line_end.h"
#include "support/test_model.h"

namespace bascule::test {

struct WorkerArguments {
  std::string endpoint;
  std::string name;
  ModelSize model = ModelSize::kSmall;
};

// Until `quit`, or until the other end is gone. The exit status.
int run_worker(const WorkerArguments& arguments, LineEnd commands);

}  // namespace bascule::test
