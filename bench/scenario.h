// A scenario: one thing that is measured. Each has a file in scenarios/ and a line in the table of scenario.cpp.
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
  bool slots_on_gpu = false;     // of the scheme's senders: where models lie
  std::shared_ptr<Gpu> gpu;      // of `device`; null: host memory
  std::filesystem::path folder;  // for endpoints and the baselines' files; removed at the end
  std::function<void(std::string_view)> progress;
  Results& results;

  int endpoints = 0;  // made so far: each gets a folder of its own
};

struct Scenario {
  std::string_view name, what;
  bool by_default = true;
  // Adds records and counts to the results. An error ends the whole run: what cannot be had is a skipped row.
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
absl::Status run_sweep(Context&);
absl::Status run_fleet_scenario(Context&);

// Fills `record` by `measure`, gives it its target, and adds it to the results. What the machine or this version cannot
// do (RESOURCE_EXHAUSTED, UNIMPLEMENTED, NOT_FOUND, INVALID_ARGUMENT) makes it a skipped row that says why.
absl::Status measure(Context& context, Record record, const std::function<absl::Status(Record&)>& measure);
// The same for counts, `what` standing in for all of them where they are skipped.
absl::Status count(Context& context, std::string_view what, const std::function<absl::Status()>& measure);

// A record of this scenario, its sizes yet to be filled in.
Record record_of(const Context& context, std::string_view scenario);
// The same with the sizes of the command line.
Record record_as_asked(const Context& context, std::string_view scenario, std::string_view baseline_name);

// More busy threads than cores: the note says so, and the row carries no target.
void note_busy_threads(Record& record, int busy_threads);

}  // namespace bascule::bench
