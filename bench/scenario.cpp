#include <bascule/bench/scenario.h>

#include <array>
#include <utility>

#include <bascule/bench/targets.h>
#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr std::string_view kOverBooked = " busy threads on ";

constexpr std::array<Scenario, 21> kScenarios = {{
    {"send", "send to last ack, digest included, over a threaded memcpy of the same bytes", true, run_send},
    {"send_cast", "the same from F32 to BF16, over the memcpy that moves as many bytes", true, run_send_cast},
    {"send_async", "until send_async() returns, over the pack", true, run_send_async},
    {"send_small", "1 MB to 2 workers, over four turns of Unix sockets between processes", true, run_send_small},
    {"many_tensors", "10,000 tensors of 1 KiB, over one flat copy of the bytes", true, run_many_tensors},
    {"durable", "send with durable=on, over a write of the same bytes and fsync", true, run_durable},
    {"stall", "what an engine loses at a flip, over what it loses at a boundary without one", true, run_stall},
    {"join", "a worker's join, over mapping the same bytes; and the first send after it", true, run_join},
    {"digest", "sends with digest=off, on and always; the digest's own rate over memcpy's reading", true, run_digest},
    {"busy", "send while trainer and engines compute", true, run_busy},
    {"memory", "memory beyond the slots; heap allocations of a steady send", true, run_memory},
    {"versions", "10,000 versions in a row: memory and descriptors", true, run_versions},
    {"broadcast", "a version in the pieces of nccl to a peer GPU, over one ncclBroadcast", false, run_broadcast},
    {"peer_copy", "the copy to a reader on a peer GPU, verified, over one cudaMemcpyPeerAsync", false, run_peer_copy},
    {"death", "a worker killed, or stopped, during a send: to the last ack of the others", false, run_death},
    {"joiner", "sends while a worker joins, over the sends before", false, run_joiner},
    {"throughput", "steps of engines while a version comes each second, over steps while none comes", false,
     run_throughput},
    {"shards", "send of a model sharded over a rank per thread, over a threaded memcpy of the same bytes", false,
     run_shards},
    {"ranks", "64 ranks of a sharded trainer: CPU of a send to 64 fake workers, planning, messages", false, run_ranks},
    {"sweep", "sends of 1 MB to 4 GiB, of 1 to 10,000 tensors, to 1 to 8 workers", false, run_sweep},
    {"fleet", "cost of a thousand fake workers to the sender: sends, joins, a death, memory", false,
     run_fleet_scenario},
}};

bool is_out_of_reach(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnimplemented(status) || absl::IsNotFound(status) ||
         absl::IsInvalidArgument(status);
}

}  // namespace

std::span<const Scenario> all_scenarios() { return kScenarios; }

Record record_of(const Context& context, std::string_view scenario) {
  Record record;
  record.scheme = context.sync.scheme;
  record.scenario = std::string(scenario);
  const auto name = [](int device) { return device == kHost ? std::string("cpu") : cat("cuda:", device); };
  record.device = name(context.device);
  if (context.worker_device != context.device) record.device += cat(" to ", name(context.worker_device));
  return record;
}

Record record_as_asked(const Context& context, std::string_view scenario, std::string_view baseline_name) {
  Record record = record_of(context, scenario);
  record.bytes = context.options.bytes;
  record.tensors = context.options.tensors;
  record.workers = static_cast<std::uint64_t>(context.options.workers);
  record.baseline_name = baseline_name;
  return record;
}

absl::Status measure(Context& context, Record record, const std::function<absl::Status(Record&)>& measure) {
  const absl::Status status = measure(record);
  if (!status.ok() && !is_out_of_reach(status)) return annotate(status, record.scenario);
  if (!status.ok()) record.skipped = std::string(message_of(status));
  if (record.note.find(kOverBooked) == std::string::npos) record.target = target_of(record);
  context.results.records.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status count(Context& context, std::string_view what, const std::function<absl::Status()>& measure) {
  absl::Status status = measure();
  if (status.ok()) return status;
  if (!is_out_of_reach(status)) return annotate(status, what);
  context.results.counts.push_back(
      {.scheme = context.sync.scheme, .what = std::string(what), .skipped = std::string(message_of(status))});
  return absl::OkStatus();
}

void note_busy_threads(Record& record, int busy_threads) {
  if (busy_threads <= kernels::usable_cores()) return;
  record.note +=
      cat(record.note.empty() ? "" : "; ", busy_threads, kOverBooked, kernels::usable_cores(), " cores: no target");
}

}  // namespace bascule::bench
