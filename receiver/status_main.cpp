// bascule-status: prints the state of an endpoint.
#include <cstdio>
#include <string_view>
#include <vector>

#include <bascule/receiver/status.h>
#include <bascule/receiver/status_page.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace {

constexpr const char* kUsage =
    "usage: bascule-status [--json] ENDPOINT|FOLDER\n"
    "\n"
    "Prints the state of an endpoint: epoch and version, workers, slots and layout. Reads the slots and compares\n"
    "their digests with the sender's. Takes no lease, so it delays no send.\n"
    "\n"
    "  ENDPOINT  as given to the trainer: shm:///run/user/1000/grpo, nccl://node1:29500 (with BASCULE_TOKEN)\n"
    "  FOLDER    an endpoint's folder, or a folder in which a scheme keeps versions\n"
    "  --json    prints the same as JSON; docs/guide/status.md names every field\n"
    "  --help    this text; also -h\n"
    "\n"
    "exit status: 0 all is right; 1 something is wrong (a slot's bytes differ from their digest, a worker is "
    "poisoned,\n"
    "a rank of a sharded trainer is gone, no worker serves the newest version);\n"
    "2 no answer (no sender and no version is there, or the arguments are wrong)\n";

constexpr const char* kOptions =
    "\n"
    "docs/guide/endpoints.md lists the options of every ENDPOINT. Some schemes have further options:\n"
    "\n";

int complain(const std::string& what) {
  std::fprintf(stderr, "bascule-status: %s\n", bascule::printable(what).c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace bascule;
  let_writes_fail();
  bool json = false;
  std::vector<std::string> targets;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h")
      return end_with("bascule-status", cat(kUsage, kOptions, help_for_options()), 0);
    if (argument == "--json") {
      json = true;
    } else if (argument.starts_with("-")) {
      return complain(
          cat("unknown flag ", argument, "; give --json or --help, as bascule-status --json shm:///tmp/run"));
    } else {
      targets.emplace_back(argument);
    }
  }
  if (targets.size() != 1)
    return complain(cat("expected one endpoint or folder, found ", targets.size(),
                        "; give one, as bascule-status shm:///tmp/run (--help tells more)"));

  const absl::StatusOr<Observation> seen = observe({.target = targets.front()});
  if (!seen.ok()) return complain(std::string(message_of(seen.status())));
  return end_with("bascule-status", json ? status_json(*seen) : status_page(*seen), seen->wrong().empty() ? 0 : 1);
}
