// The program of a worker of the tests: it holds a Receiver and obeys commands, each answered by one line of JSON.
//
//   run             commit and check the weights, again and again
//   step            commit and check once
//   follow V        commit(V), as a rank above 0, and check
//   join            join() only
//   take            take() once, and check
//   finish          finish() what was taken
//   fail            finish() what was taken, with an error
//   hold            check the served weights again and again, and commit nothing
//   pause           neither commit nor check
//   ready MS V      wait_ready() for MS milliseconds, for version V or a later one
//   report          answer what it served, and the first broken promise
//   fault HOOK N    with the fake scheme: the next N calls of HOOK fail
//   die N           by SIGKILL, at the N-th control message after this
//   lose            make this process lose its device, then commit again and again, without checks
//   quit
//
// To check means to verify that all tensors of the served slot are of one generation, that versions only grow, and that
// a slot's views do not move. The first violation is kept in "wrong".
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
  std::optional<Apply> copies{};   // into its own tensors; nullopt: it reads in place
  int device = kHost;              // the device on which it reads, or has its tensors
  const Scheme* scheme = nullptr;  // used instead of the registry's; only in a thread
};

// Runs until `quit`, or until the other end is gone; returns the exit status.
int run_worker(const WorkerArguments& arguments, LineEnd commands);

}  // namespace bascule::test
