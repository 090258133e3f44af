// A scenario: one measurement. Each has a file in scenarios/ and a line in the table of scenario.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include <bascule/bench/gpu.h>
#include <bascule/bench/options.h>
#include <bascule/bench/record.h>
#include <bascule/kernels/thread_pool.h>

namespace bascule::bench {

struct Context {
  const Options& options;
  const Sync& sync;
  kernels::ThreadPool& pool;     // fills models, runs the baselines
  int device = kHost;            // where models lie
  int worker_device = kHost;     // where workers read, or the first of them
  bool slots_on_gpu = false;     // the scheme keeps slots with the models
  std::shared_ptr<Gpu> gpu;      // the GPU `device`; null if that is kHost
  std::filesystem::path folder;  // for endpoints and the baselines' files; removed at the end
  std::function<void(std::string_view)> progress;
  Results& results;

  int endpoints = 0;  // made so far; each gets a separate folder
};

struct Scenario {
  std::string_view name, what;
  bool by_default = true;
  // Adds records and counts to the results. An error ends the whole run; unavailable resources give a skipped row.
  absl::Status (*run)(Context&) = nullptr;
};

std::span<const Scenario> all_scenarios();

absl::Status run_send(Context&);
absl::Status run_send_cast(Context&);
absl::Status run_send_async(Context&);
absl::Status run_send_small(Context&);
absl::Status run_many_tensors(Context&);
absl::Status run_durable(Context&);
absl::Status run_stall(Context&);
absl::Status run_join(Context&);
absl::Status run_digest(Context&);
absl::Status run_busy(Context&);
absl::Status run_memory(Context&);
absl::Status run_versions(Context&);
absl::Status run_peer_copy(Context&);
absl::Status run_broadcast(Context&);
absl::Status run_death(Context&);
absl::Status run_joiner(Context&);
absl::Status run_throughput(Context&);
absl::Status run_shards(Context&);
absl::Status run_ranks(Context&);
absl::Status run_sweep(Context&);
absl::Status run_fleet_scenario(Context&);

// Lets `measure` fill `record`, sets the record's target, and adds it to the results. If `measure` returns
// RESOURCE_EXHAUSTED, UNIMPLEMENTED, NOT_FOUND or INVALID_ARGUMENT, because the machine or this version cannot do it,
// the record becomes a skipped row that says why.
absl::Status measure(Context& context, Record record, const std::function<absl::Status(Record&)>& measure);
// Like measure(), for counts; if they are skipped, one row named `what` stands for all of them.
absl::Status count(Context& context, std::string_view what, const std::function<absl::Status()>& measure);

// Returns an empty record of the scenario, without sizes.
Record record_of(const Context& context, std::string_view scenario);
// Like record_of(), but with the sizes of the command line.
Record record_as_asked(const Context& context, std::string_view scenario, std::string_view baseline_name);

// If there are more busy threads than cores, adds a note to the row and drops its target.
void note_busy_threads(Record& record, int busy_threads);

}  // namespace bascule::bench
