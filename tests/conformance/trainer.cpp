// conformance-trainer ENDPOINT GENERATION DEVICE: a sender that obeys the commands of support/processes/trainer.h.
// conformance-trainer ENDPOINT RANK RANKS MESSAGE SIGNAL DEVICE: a rank that obeys the commands of
// support/processes/rank.h.
#include "support/processes/trainer.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/nccl/own_host.h"
#include "support/processes/rank.h"

int main(int argc, char** argv) {
  using namespace bascule;
  if (argc == 7)
    return test::run_rank({.endpoint = argv[1],
                           .rank = static_cast<std::uint32_t>(std::atoi(argv[2])),
                           .ranks = static_cast<std::uint32_t>(std::atoi(argv[3])),
                           .doomed_at = std::atoi(argv[4]),
                           .signal = std::atoi(argv[5]),
                           .device = std::atoi(argv[6])},
                          test::LineEnd(UniqueFd(STDIN_FILENO)));
  if (argc != 4) return std::fprintf(stderr, "usage: conformance-trainer ENDPOINT GENERATION DEVICE\n"), 2;
  test::be_a_separate_host(argv[1]);
  return test::run_trainer(argv[1], std::strtoull(argv[2], nullptr, 10), std::atoi(argv[3]),
                           test::LineEnd(UniqueFd(STDIN_FILENO)));
}
