#include "simulator/options.h"

#include <algorithm>
#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "simulator/world.h"
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/status.h>

using bascule::ByteSize;

ABSL_FLAG(std::vector<std::string>, engines, {"512"}, "How many engines; a list gives one row per number.");
ABSL_FLAG(int, hosts, 0, "Hosts of the engines, which fill them evenly; 0: 8 engines per host.");
ABSL_FLAG(int, nics, 1, "NICs of each host; GPU g of a host uses NIC g mod --nics.");
ABSL_FLAG(std::vector<std::string>, route, {"chain"},
          "Routes, one row each: star, chain, tree2, tree3 …, striped1 (by chains), striped2 (by trees of degree 2) …");
ABSL_FLAG(ByteSize, bytes, ByteSize{3'090'000'000}, "Size of a version.");
ABSL_FLAG(ByteSize, piece, ByteSize{64 << 20}, "Size of a piece; a node passes a piece on once it has all of it.");
ABSL_FLAG(int, versions, 10, "How many versions the trainer sends, one after the other.");
ABSL_FLAG(absl::Duration, step, absl::Milliseconds(10), "Time from one token boundary of an engine to its next.");
ABSL_FLAG(double, nic_gb_per_s, 50, "Speed of each NIC in each direction, in GB/s.");
ABSL_FLAG(double, deaths, 0, "How many engines die per second of virtual time, on average. Dead engines stay dead.");
ABSL_FLAG(
    std::string, notice, "hang-up",
    "How a death is noticed: hang-up (a process ended), silence (a host died: suspect_after), or either, by chance.");
ABSL_FLAG(absl::Duration, repair, absl::Milliseconds(1),
          "Time from a hang-up until the nodes below the dead engine have asked another node for the rest.");
ABSL_FLAG(
    std::string, successor, "above",
    "The node that nodes below a dead engine ask: above (the nearest live one above it, or the trainer), or beside (an "
    "engine of its host that was below it takes its place).");
ABSL_FLAG(uint64_t, seed, 1, "The same seed gives the same output.");
ABSL_FLAG(std::string, options, "", "Options of the sender's endpoint, as timeout=2m&suspect_after=2s.");
ABSL_FLAG(std::string, json, "", "Write the settings and every send to this file.");

namespace bascule::simulator {
namespace {

constexpr int kMostEngines = 65'536;
constexpr std::int64_t kLeastPiece = 64 << 10;

absl::Status check() {
  const std::int64_t bytes = absl::GetFlag(FLAGS_bytes).bytes, piece = absl::GetFlag(FLAGS_piece).bytes;
  const absl::Duration step = absl::GetFlag(FLAGS_step), repair = absl::GetFlag(FLAGS_repair);
  FlagChecks checks;
  checks.between("hosts", absl::GetFlag(FLAGS_hosts), 0, kMostEngines)
      .between("nics", absl::GetFlag(FLAGS_nics), 1, 64)
      .between("bytes", bytes, std::int64_t{1}, std::int64_t{1} << 44)
      .between("piece", piece, kLeastPiece, std::int64_t{1} << 40)
      .that(bytes / piece <= 1'000'000, "piece", piece, "give at least a millionth of --bytes=", bytes)
      .between("versions", absl::GetFlag(FLAGS_versions), 1, 1'000'000)
      .that(step >= absl::ZeroDuration() && step < absl::Hours(1), "step", absl::FormatDuration(step),
            "give 0 or more, as --step=10ms")
      .above_zero("nic-gb-per-s", absl::GetFlag(FLAGS_nic_gb_per_s), 50, 1e6)
      .between("deaths", absl::GetFlag(FLAGS_deaths), 0.0, 1e6)
      .one_of("notice", absl::GetFlag(FLAGS_notice), {"hang-up", "silence", "either"})
      .one_of("successor", absl::GetFlag(FLAGS_successor), {"above", "beside"})
      .that(repair >= absl::ZeroDuration() && repair <= absl::Minutes(1), "repair", absl::FormatDuration(repair),
            "give 0 to 1m, as --repair=1ms");
  return checks.status();
}

absl::StatusOr<int> engines_of(const std::string& text) {
  int engines = 0;
  if (!absl::SimpleAtoi(text, &engines) || engines < 1 || engines > kMostEngines)
    return invalid_argument("--engines=", text, ": give numbers from 1 to ", kMostEngines, ", as --engines=8,64,512");
  return engines;
}

Settings common_settings() {
  Settings settings;
  settings.machine.nics = absl::GetFlag(FLAGS_nics);
  settings.machine.nic.bytes_per_second = absl::GetFlag(FLAGS_nic_gb_per_s) * 1e9;
  settings.pieces = {.bytes = static_cast<std::uint64_t>(absl::GetFlag(FLAGS_bytes).bytes),
                     .piece_bytes = static_cast<std::uint64_t>(absl::GetFlag(FLAGS_piece).bytes)};
  settings.versions = absl::GetFlag(FLAGS_versions);
  settings.step_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_step));
  settings.deaths = {.per_second = absl::GetFlag(FLAGS_deaths),
                     .notice = *parse_notice(absl::GetFlag(FLAGS_notice)),
                     .repair_seconds = absl::ToDoubleSeconds(absl::GetFlag(FLAGS_repair)),
                     .successor = absl::GetFlag(FLAGS_successor) == "beside" ? Successor::kBeside : Successor::kAbove};
  settings.seed = absl::GetFlag(FLAGS_seed);
  settings.endpoint_options = absl::GetFlag(FLAGS_options);
  return settings;
}

}  // namespace

absl::StatusOr<Options> options_from_flags() {
  BASCULE_TRY(check());
  Options options;
  options.json = absl::GetFlag(FLAGS_json);
  if (!options.json.empty())
    BASCULE_TRY(of_flag(check_output(options.json), "json", options.json, "give a file in a folder that exists"));
  Settings settings = common_settings();
  BASCULE_TRY(of_flag(check_endpoint_options(settings.endpoint_options), "options", settings.endpoint_options,
                      "give options of a sender, as --options='timeout=2m&suspect_after=2s'"));
  for (const std::string& text : absl::GetFlag(FLAGS_engines)) {
    BASCULE_ASSIGN(settings.machine.engines, engines_of(text));
    const int hosts = absl::GetFlag(FLAGS_hosts);
    settings.machine.hosts = hosts > 0 ? std::min(hosts, settings.machine.engines) : (settings.machine.engines + 7) / 8;
    for (const std::string& name : absl::GetFlag(FLAGS_route)) {
      const auto route = parse_route(name);
      if (!route.ok()) return of_flag(route.status(), "route", name, "as --route=star,chain,tree2,striped2");
      settings.route = *route;
      options.runs.push_back(settings);
    }
  }
  return options;
}

}  // namespace bascule::simulator
