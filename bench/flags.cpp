// The flags of bascule-bench. They belong to this program, not to the library that other programs link.
#include <bascule/bench/flags.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_join.h"
#include <bascule/bench/scenario.h>
#include <bascule/kernels/control_group.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/program/sync_flag.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/program/byte_size.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/program/output.h>
#include <bascule/transport/status.h>

using bascule::ByteSize;

ABSL_FLAG(std::vector<std::string>, sync, {bascule::plainest_scheme(/*on_device=*/false).name},
          "What to measure: schemes, such as shm,memmap, or endpoints with folder and options, such as "
          "memmap:///data/slots?digest=off. A scheme that this build does not have gives a skipped row.");
ABSL_FLAG(
    std::vector<std::string>, scenario, {},
    "The scenarios to run, in this order: send, send_cast, send_async, send_small, many_tensors, durable, stall, join, "
    "digest, busy, memory, versions, broadcast, peer_copy, death, joiner, throughput, shards, ranks, sweep, "
    "fleet. Default: all except the last nine, which need several GPUs, end workers, take long, start a thousand of "
    "them, or need a sharded trainer. "
    "docs/measurements/README.md says what each measures.");
ABSL_FLAG(ByteSize, bytes, ByteSize{1 << 30},
          "Size of a slot. Targets hold for 1 GiB or more. If model and slots do not fit into memory, the row is "
          "skipped and shows the arithmetic.");
ABSL_FLAG(int, tensors, 338, "Number of tensors of the model.");
ABSL_FLAG(std::string, workers, "2",
          "Worker processes, 1 to 64. For fleet: sizes of fake fleets, 1 to 8192: 256, or 64,256,1024 (the default), "
          "or 8..1024, which doubles at each step.");
ABSL_FLAG(int, repeat, 50, "Counted turns per row; rows that take milliseconds or less get ten times as many.");
ABSL_FLAG(uint64_t, seed, 1, "Seed of the weights, and of the resampling of --compare.");
ABSL_FLAG(int, threads, 0, "Number of threads that pack, and that copy in the baselines; 0: one per core.");
ABSL_FLAG(std::string, device, "",
          "Device of the models: cpu or cuda:N. Default: cuda:0 if the scheme keeps its slots on a GPU, else cpu.");
ABSL_FLAG(std::vector<std::string>, worker_device, {},
          "Device of the workers: cpu or cuda:N, or a list that the workers take in turn. Default: as --device.");
ABSL_FLAG(bool, spin, false,
          "In send, send_cast and send_small the workers call commit() without pause, instead of sleeping until "
          "on_pending wakes them. Needs a core for each worker and one for the sender.");
ABSL_FLAG(bool, quick, false,
          "Every scenario in under a minute: 64 MiB, 10 turns, 500 versions. Other flags override it.");
ABSL_FLAG(bool, log, false, "Print the sender's log to stderr, with the seconds since it began.");
ABSL_FLAG(
    bool, own_hosts, false,
    "Make NCCL treat each process as a separate host: it uses the multi-host path, over loopback, with any number of "
    "workers on one GPU.");
ABSL_FLAG(std::string, folder, "",
          "Folder for endpoints and the baselines' files during the run; choose one on a disk for memmap and durable. "
          "Default: the system's folder for temporary files.");
ABSL_FLAG(std::string, json, "", "Write machine, records and raw samples to this file.");
ABSL_FLAG(std::string, html, "", "Write the results as one page that needs no network to this file.");
ABSL_FLAG(std::vector<std::string>, from, {},
          "Measure nothing: show these files, written by --json, as one table and, with --html, one page.");
ABSL_FLAG(std::vector<std::string>, compare, {},
          "A.json B.json: measure nothing; print the ratio of B's medians to A's for each record. Files from different "
          "machines are refused.");

namespace bascule::bench {
namespace {

bool is_given(const absl::CommandLineFlag& flag) { return flag.CurrentValue() != flag.DefaultValue(); }

absl::StatusOr<std::optional<int>> device_of(std::string_view flag, std::string_view text) {
  if (text.empty()) return std::optional<int>();
  const absl::StatusOr<int> device = parse_device(text);
  if (!device.ok()) return annotate(device.status(), cat("--", flag));
  return std::optional<int>(*device);
}

absl::Status check_scenarios(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Scenario& scenario : all_scenarios()) known.emplace_back(scenario.name);
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      return invalid_argument("--scenario: there is no '", name, "'", did_you_mean(name, known),
                              "; give one, as --scenario=send (--help lists them)");
  return absl::OkStatus();
}

// OK if the scheme and its options are known, and the folder exists. A scheme that this build lacks gives a skipped
// row.
absl::Status check_scheme(const Sync& sync, std::string_view text) {
  std::error_code error;
  if (!sync.folder.empty() && !std::filesystem::is_directory(sync.folder, error))
    return invalid_argument("--sync=", text, ": ", sync.folder, " is not a folder; make it, or give one that exists");
  const absl::Status status = check_sync(sync.endpoint("/run", ""), ComputesOn::kGpu, SyncEnd::kSender);
  return absl::IsUnimplemented(status) ? absl::OkStatus() : annotate(status, cat("--sync=", text));
}

// Takes --workers. Scenarios with worker processes need one small number.
absl::Status take_workers(Options& options) {
  constexpr int kMostProcesses = 64, kMostFakes = 8192;
  const std::string text = absl::GetFlag(FLAGS_workers);
  absl::StatusOr<std::vector<int>> counts = parse_counts(text);
  if (!counts.ok()) return annotate(counts.status(), "--workers");
  const bool fleet_alone = options.scenarios == std::vector<std::string>{"fleet"};
  const bool given = is_given(*absl::FindCommandLineFlag("workers"));
  FlagChecks checks;
  const int most = fleet_alone ? kMostFakes : kMostProcesses;
  checks.between("workers", counts->front(), 1, most)
      .between("workers", counts->back(), 1, most)
      .that(fleet_alone || counts->size() == 1, "workers", text,
            "several numbers are for --scenario=fleet only; give one number, as --workers=2");
  BASCULE_TRY(checks.status());
  options.workers = counts->front();
  options.fleets = given ? *std::move(counts) : std::vector<int>{64, 256, 1024};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> options_from_flags() {
  Options options;
  const int cores = kernels::usable_cores();
  const std::int64_t bytes = absl::GetFlag(FLAGS_bytes).bytes;
  options.quick = absl::GetFlag(FLAGS_quick);
  options.compare = absl::GetFlag(FLAGS_compare);
  options.repeat = absl::GetFlag(FLAGS_repeat);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.spin = absl::GetFlag(FLAGS_spin);
  options.log = absl::GetFlag(FLAGS_log);
  options.own_hosts = absl::GetFlag(FLAGS_own_hosts);
  options.scenarios = absl::GetFlag(FLAGS_scenario);
  BASCULE_TRY(take_workers(options));
  options.json = absl::GetFlag(FLAGS_json);
  options.html = absl::GetFlag(FLAGS_html);
  options.from = absl::GetFlag(FLAGS_from);
  const int tensors = absl::GetFlag(FLAGS_tensors);
  FlagChecks checks;
  checks.at_least("bytes", bytes, std::int64_t{4096})
      .between("tensors", tensors, 1, 1'000'000)
      .that(std::int64_t{tensors} * 4 <= bytes, "tensors", tensors,
            "give at most one for every 4 bytes of --bytes=", bytes,
            ", as --tensors=", std::max<std::int64_t>(1, bytes / 4))
      .between("repeat", options.repeat, 1, 100'000)
      .between("threads", options.threads, 0, 256)
      .that(!options.spin || options.workers < cores, "spin", "true", "needs ", options.workers + 1,
            " cores, one for each worker and one for the sender; this machine gives ", cores,
            "; give fewer workers, as --workers=1, or leave --spin out")
      .that(options.compare.empty() || options.compare.size() == 2, "compare", absl::StrJoin(options.compare, ","),
            "give two files that --json wrote, as --compare before.json after.json; found ", options.compare.size())
      .that(options.compare.empty() || options.from.empty(), "from", "…", "give it without --compare, as --from=a.json")
      .that(options.compare.empty() || (options.json.empty() && options.html.empty()), "compare", "…",
            "it only prints; leave --json and --html out, as --compare a.json b.json");
  BASCULE_TRY(checks.status());
  BASCULE_TRY(check_scenarios(options.scenarios));

  BASCULE_ASSIGN(options.device, device_of("device", absl::GetFlag(FLAGS_device)));
  for (const std::string& each : absl::GetFlag(FLAGS_worker_device)) {
    BASCULE_ASSIGN(const std::optional<int> device, device_of("worker-device", each));
    if (device) options.worker_devices.push_back(*device);
  }
  options.bytes = static_cast<std::uint64_t>(bytes);
  options.tensors = static_cast<std::uint64_t>(tensors);
  if (options.quick && !is_given(*absl::FindCommandLineFlag("bytes"))) options.bytes = 64 << 20;
  if (options.quick && !is_given(*absl::FindCommandLineFlag("repeat"))) options.repeat = 10;
  if (options.threads == 0) options.threads = cores;
  if (options.scenarios.empty())
    for (const Scenario& scenario : all_scenarios())
      if (scenario.by_default) options.scenarios.emplace_back(scenario.name);
  for (const auto& [flag, file] : {std::pair("json", options.json), std::pair("html", options.html)})
    if (absl::Status status = check_output(file); !file.empty() && !status.ok())
      return invalid_argument("--", flag, "=", file, ": ", message_of(status), "; give a file, as --", flag, "=out.",
                              flag);
  for (const std::string& text : absl::GetFlag(FLAGS_sync)) {
    BASCULE_ASSIGN(Sync sync, parse_sync(text));
    BASCULE_TRY(check_scheme(sync, text));
    options.sync.push_back(std::move(sync));
  }
  if (options.sync.empty()) return invalid_argument("--sync=: give a scheme, as --sync=shm");

  std::error_code error;
  const std::string folder = absl::GetFlag(FLAGS_folder);
  options.folder = folder.empty() ? std::filesystem::temp_directory_path(error) : std::filesystem::path(folder);
  if (!std::filesystem::is_directory(options.folder, error))
    return invalid_argument("--folder=", options.folder.string(), ": give a folder that exists, as --folder=/tmp");
  return options;
}

}  // namespace bascule::bench
