#include <bascule/bench/targets.h>

#include <algorithm>
#include <array>

namespace bascule::bench {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// From where to where, by a record's device.
enum class Path { kHost, kSameGpu, kPeerGpu, kThroughHost };

Path path_of(const Record& record) {
  if (record.device == "cpu") return Path::kHost;
  if (!keeps_slots_on_gpu(record.scheme)) return Path::kThroughHost;
  return record.device.find(" to ") == std::string::npos ? Path::kSameGpu : Path::kPeerGpu;
}

// A row holds for records of at least so many bytes; an empty scheme is any.
struct Row {
  Path path;
  std::string_view scheme, scenario;
  std::uint64_t least_bytes;
  Goal target;
};
constexpr auto kRatio = Goal::Of::kRatio;
constexpr std::array<Row, 28> kRows = {{
    {Path::kHost, "shm", "send", kGiB, {kRatio, 1.15}},
    {Path::kHost, "memmap", "send", kGiB, {kRatio, 1.15}},
    {Path::kHost, "", "send_cast", kGiB, {kRatio, 1.25}},
    {Path::kHost, "memmap", "durable", kGiB, {kRatio, 1.15}},
    {Path::kHost, "", "send_small", 0, {kRatio, 4}},
    {Path::kHost, "", "many_tensors", 0, {kRatio, 2}},
    {Path::kHost, "", "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kHost, "", "stall_cpu", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kHost, "", "send_async", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, "", "send", kGiB, {kRatio, 1.15}},
    {Path::kSameGpu, "", "send_after_pack", 0, {Goal::Of::kP50Seconds, 100e-6}},
    {Path::kSameGpu, "", "send_async", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, "", "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kPeerGpu, "nccl", "send", kGiB, {kRatio, 1.12}},
    {Path::kPeerGpu, "nccl", "broadcast", kGiB, {kRatio, 1.03}},
    {Path::kPeerGpu, "nccl", "broadcast", 0, {kRatio, 2}},
    {Path::kPeerGpu, "cuda-ipc", "send", kGiB, {kRatio, 1.2}},
    {Path::kPeerGpu, "", "peer_copy", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, "nccl", "death", 0, {Goal::Of::kP50Seconds, 1.5}},
    {Path::kSameGpu, "nccl", "death_stopped", 0, {Goal::Of::kP50Seconds, 3.5}},
    {Path::kPeerGpu, "nccl", "death", 0, {Goal::Of::kP50Seconds, 1.5}},
    {Path::kPeerGpu, "nccl", "death_stopped", 0, {Goal::Of::kP50Seconds, 3.5}},
    {Path::kPeerGpu, "cuda-ipc", "death", 0, {Goal::Of::kP50Seconds, 0.3}},
    {Path::kPeerGpu, "nccl", "joiner", 0, {kRatio, 1.05}},
    {Path::kPeerGpu, "nccl", "throughput", kGiB, {kRatio, 1 / 0.90}},
    {Path::kPeerGpu, "cuda-ipc", "throughput", kGiB, {kRatio, 1 / 0.97}},
    {Path::kThroughHost, "", "send", kGiB, {kRatio, 1.15}},
    {Path::kThroughHost, "", "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
}};

}  // namespace

std::optional<Goal> target_of(const Record& record) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& row) {
    return row.path == path_of(record) && (row.scheme.empty() || row.scheme == record.scheme) &&
           row.scenario == record.scenario && record.bytes >= row.least_bytes;
  });
  if (row == kRows.end()) return std::nullopt;
  return row->target;
}

bool keeps_slots_on_gpu(std::string_view scheme) {
  return scheme == "auto" || scheme == "cuda-ipc" || scheme == "nccl";
}

FlatCopy::Into slot_memory_of(std::string_view scheme) {
  return scheme == "memmap" ? FlatCopy::Into::kFile : FlatCopy::Into::kMemfd;
}

}  // namespace bascule::bench
