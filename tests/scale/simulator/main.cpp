// bascule-simulate: how long a version takes to reach hundreds of engines, by route.
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "simulator/options.h"
#include "simulator/report.h"
#include "simulator/world.h"
#include <bascule/transport/program/flags.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/program/signals.h>
#include <bascule/transport/status.h>

namespace {

using namespace bascule::simulator;

const bascule::ProgramInfo kProgram{
    .name = "bascule-simulate",
    .summary =
        "sends versions from one trainer to many engines on a virtual clock, with the sender's real control plane and\n"
        "arithmetic for the bytes on links. Nothing is copied, and no network is touched.\n"
        "docs/design/scale.md says what is modelled, and what is not."};

absl::Status run(const Options& options, const std::string& command) {
  std::vector<Row> rows;
  for (const Settings& settings : options.runs) {
    BASCULE_ASSIGN(Outcome outcome, simulate(settings));
    rows.push_back({.settings = settings, .outcome = std::move(outcome)});
  }
  if (!options.json.empty()) BASCULE_TRY(bascule::write_output(options.json, json_of(rows, command)));
  return bascule::print(table_of(rows));
}

}  // namespace

int main(int argc, char** argv) {
  bascule::let_writes_fail();
  bascule::parse_flags_or_exit(kProgram, argc, argv);
  const auto options = options_from_flags();
  if (!options.ok()) bascule::refuse(kProgram, options.status());
  std::string command = kProgram.name;
  for (const char* word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1))
    command += bascule::cat(" ", word);
  const absl::Status status = run(*options, command);
  if (status.ok()) return 0;
  std::fprintf(stderr, "bascule-simulate: %s\n", std::string(bascule::message_of(status)).c_str());
  return 1;
}
