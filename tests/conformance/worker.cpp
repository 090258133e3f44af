// conformance-worker ENDPOINT NAME MODEL GROUP RANK RANKS DEVICE [APPLY]: a worker that obeys the commands of
// support/processes/worker_program.h, and copies if APPLY (a number) is given.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/nccl/own_host.h"
#include "support/processes/worker_program.h"

int main(int argc, char** argv) {
  using namespace bascule;
  if (argc != 8 && argc != 9)
    return std::fprintf(stderr, "usage: conformance-worker ENDPOINT NAME MODEL GROUP RANK RANKS DEVICE [APPLY]\n"), 2;
  test::be_a_separate_host(argv[1]);
  test::WorkerArguments arguments{.endpoint = argv[1],
                                  .name = argv[2],
                                  .model = static_cast<test::ModelSize>(std::atoi(argv[3])),
                                  .group = argv[4],
                                  .rank = static_cast<std::uint32_t>(std::atoi(argv[5])),
                                  .ranks = static_cast<std::uint32_t>(std::atoi(argv[6])),
                                  .copies = {},
                                  .device = std::atoi(argv[7])};
  if (argc == 9) arguments.copies = static_cast<Apply>(std::atoi(argv[8]));
  return test::run_worker(arguments, test::LineEnd(UniqueFd(STDIN_FILENO)));
}
