// conformance-trainer ENDPOINT GENERATION DEVICE: a sender that obeys the commands of
// support/processes/trainer.h.
#include "support/processes/trainer.h"
#include "support/nccl/own_host.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  using namespace bascule;
  if (argc != 4) return std::fprintf(stderr, "usage: conformance-trainer ENDPOINT GENERATION DEVICE\n"), 2;
  test::be_a_separate_host(argv[1]);
  return test::run_trainer(argv[1], std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]),
                           test::LineEnd(UniqueFd(STDIN_FILENO)));
}
