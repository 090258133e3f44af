// bascule-bench: what each scheme costs, as a share of what the machine can do.
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "bench/compare.h"
#include "bench/driver.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "bench/page.h"
#include "bench/table.h"
#include "bench/worker.h"
#include "trainer_ref/program/flags.h"
#include "transport/text.h"

namespace {

using namespace bascule::bench;

const bascule::ref::ProgramInfo kProgram{
    .name = "bascule-bench",
    .summary =
        "measures sends between this process and worker processes, in turns with the plainest code that moves the\n"
        "same bytes, and prints our time over its. Workers check every byte that they serve. docs/benchmarking.md "
        "says\n"
        "what each scenario measures and how to read the tables."};

absl::Status write_file(const std::string& file, const std::string& text) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << text << std::flush;
  if (!stream) return bascule::unavailable(file, ": cannot be written");
  return absl::OkStatus();
}

absl::StatusOr<Results> results_of(const Options& options) {
  if (options.from.empty()) return run_all(options);
  Results all;
  for (const std::string& file : options.from) {
    BASCULE_ASSIGN(Results results, read_results(file));
    if (&file != &options.from.front()) {
      if (const std::string why = all.machine.difference(results.machine); !why.empty())
        return bascule::invalid_argument(file, " is of another machine: ", why);
    } else {
      all.machine = results.machine;
      all.seed = results.seed;
    }
    all.command += bascule::cat(all.command.empty() ? "" : "; ", results.command);
    std::ranges::move(results.records, std::back_inserter(all.records));
    std::ranges::move(results.counts, std::back_inserter(all.counts));
  }
  return all;
}

absl::Status compare_files(const Options& options) {
  BASCULE_ASSIGN(const Results before, read_results(options.compare[0]));
  BASCULE_ASSIGN(const Results after, read_results(options.compare[1]));
  BASCULE_ASSIGN(const std::string table, compare(before, after, options.seed));
  std::fputs(table.c_str(), stdout);
  return absl::OkStatus();
}

absl::Status run(const Options& options) {
  if (!options.compare.empty()) return compare_files(options);
  BASCULE_ASSIGN(const Results results, results_of(options));
  std::fputs(shown(results).c_str(), stdout);
  if (!options.json.empty()) BASCULE_TRY(write_file(options.json, to_json(results)));
  if (!options.html.empty()) BASCULE_TRY(write_file(options.html, page_of(results)));
  if (const std::string failure = failure_of(results); !failure.empty()) return absl::InternalError(failure);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  // The roles that the driver starts, and what top calls them.
  if (argc > 1 && words[1] == "worker") {
    ::prctl(PR_SET_NAME, "bench-worker");
    return run_worker({words.begin() + 2, words.end()});
  }
  if (argc > 1 && words[1] == "echo") {
    ::prctl(PR_SET_NAME, "bench-echo");
    return run_echo();
  }

  words = join_compared(std::move(words));
  std::vector<const char*> arguments;
  std::string command;
  for (const std::string& word : words) {
    arguments.push_back(word.c_str());
    command += bascule::cat(command.empty() ? "" : " ", arguments.size() == 1 ? "bascule-bench" : word);
  }
  bascule::ref::parse_flags_or_exit(kProgram, static_cast<int>(arguments.size()), arguments.data());
  absl::StatusOr<Options> options = options_from_flags();
  if (!options.ok()) bascule::ref::refuse(kProgram, options.status());
  options->command = command;
  const absl::Status status = run(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-bench: %s\n", status.ToString().c_str());
  return 1;
}
