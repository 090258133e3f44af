// conformance-worker ENDPOINT NAME MODEL: a worker that obeys the commands of support/worker_program.h.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/worker_program.h"

int main(int argc, char** argv) {
  using namespace bascule;
  if (argc != 4) return std::fprintf(stderr, "usage: conformance-worker ENDPOINT NAME MODEL\n"), 2;
  const test::WorkerArguments arguments{
      .endpoint = argv[1], .name = argv[2], .model = static_cast<test::ModelSize>(std::atoi(argv[3]))};
  return test::run_worker(arguments, test::LineEnd(UniqueFd(STDIN_FILENO)));
}
