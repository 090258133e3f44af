// bascule-bench: what each scheme costs, as a share of what the machine can do.
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <vector>

#include <bascule/bench/baselines.h>
#include <bascule/bench/compare.h>
#include <bascule/bench/driver.h>
#include <bascule/bench/flags.h>
#include <bascule/bench/fleet_process.h>
#include <bascule/bench/own_host.h>
#include <bascule/bench/page.h>
#include <bascule/bench/run_folders.h>
#include <bascule/bench/supervise.h>
#include <bascule/bench/table.h>
#include <bascule/bench/worker.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/descriptors.h>
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

namespace {

using namespace bascule::bench;

const bascule::ProgramInfo kProgram{
    .name = "bascule-bench",
    .summary =
        "measures sends from this process to worker processes, alternating with the simplest code that moves the\n"
        "same bytes (the baseline), and prints the ratio of the two times. Workers check every byte that they serve.\n"
        "docs/measurements/README.md says what each scenario measures and how to read the tables."};

absl::StatusOr<Results> read_named(std::string_view flag, const std::string& file, std::string_view advice) {
  absl::StatusOr<Results> results = read_results(file);
  if (!results.ok()) return bascule::of_flag(results.status(), flag, file, advice);
  return results;
}

absl::StatusOr<Results> read_all(const Options& options) {
  Results all;
  for (const std::string& file : options.from) {
    BASCULE_ASSIGN(Results results,
                   read_named("from", file, "give files that --json wrote, as --from=before.json,after.json"));
    if (&file != &options.from.front()) {
      if (const std::string why = all.machine.difference(results.machine); !why.empty())
        return bascule::invalid_argument("--from=", file, ": expected figures of one machine, found another than in ",
                                         options.from.front(), " (", why,
                                         "); give files of one, as --from=a.json,b.json");
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
  constexpr std::string_view kAdvice = "give two files that --json wrote, as --compare before.json after.json";
  BASCULE_ASSIGN(const Results before, read_named("compare", options.compare[0], kAdvice));
  BASCULE_ASSIGN(const Results after, read_named("compare", options.compare[1], kAdvice));
  BASCULE_ASSIGN(const std::string table, compare(before, after, options.seed));
  return bascule::print(table);
}

absl::Status show(const Options& options, const Results& results) {
  // Files first: the results are kept even if stdout fails.
  if (!options.json.empty()) BASCULE_TRY(bascule::write_output(options.json, to_json(results)));
  if (!options.html.empty()) BASCULE_TRY(bascule::write_output(options.html, page_of(results)));
  BASCULE_TRY(bascule::print(shown(results)));
  if (const std::string failure = failure_of(results); !failure.empty()) return absl::InternalError(failure);
  return absl::OkStatus();
}

absl::Status measure(const Options& options, const std::vector<std::filesystem::path>& folders) {
  BASCULE_ASSIGN(const Results results, run_all(options, folders));
  return show(options, results);
}

int exit_status(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-bench: %s\n", std::string(bascule::message_of(status)).c_str());
  return 1;
}

void remove_what_others_left(const Options& options) {
  std::vector<std::filesystem::path> parents = options.parents();
  std::ranges::sort(parents);
  parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
  for (const std::filesystem::path& parent : parents)
    for (const std::filesystem::path& folder : remove_left_behind(parent))
      std::fprintf(stderr, "bascule-bench: removed %s, which a killed run had left\n", folder.c_str());
}

absl::Status show_files(const Options& options) {
  if (!options.compare.empty()) return compare_files(options);
  BASCULE_ASSIGN(const Results results, read_all(options));
  return show(options, results);
}

}  // namespace

int main(int argc, char** argv) {
  bascule::let_writes_fail();
  bascule::raise_descriptor_limit();
  std::vector<std::string> words(argv, argv + argc);
  // The roles that the driver starts, with their names in top.
  if (argc > 1 && words[1] == "worker") {
    ::prctl(PR_SET_NAME, "bench-worker");
    return run_worker({words.begin() + 2, words.end()});
  }
  if (argc > 1 && words[1] == "fleet") {
    ::prctl(PR_SET_NAME, "bench-fleet");
    return run_fleet({words.begin() + 2, words.end()});
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
  bascule::parse_flags_or_exit(kProgram, static_cast<int>(arguments.size()), arguments.data());
  absl::StatusOr<Options> options = options_from_flags();
  if (!options.ok()) bascule::refuse(kProgram, options.status());
  options->command = command;
  if (!options->compare.empty() || !options->from.empty()) {
    const absl::Status shown = show_files(*options);
    if (absl::IsInvalidArgument(shown)) bascule::refuse(kProgram, shown);  // an error in the named files
    return exit_status(shown);
  }
  remove_what_others_left(*options);
  if (options->own_hosts) be_own_host();
  const absl::StatusOr<RunFolders> folders = RunFolders::make(options->parents());
  if (!folders.ok()) return exit_status(folders.status());
  return supervise(*folders, [&] { return exit_status(measure(*options, folders->paths())); });
}
