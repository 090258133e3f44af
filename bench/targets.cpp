#include <bascule/bench/targets.h>

#include <algorithm>
#include <array>

#include <bascule/schemes/registry.h>

namespace bascule::bench {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// The path from trainer to engine, by a record's device.
enum class Path { kHost, kSameGpu, kPeerGpu, kThroughHost };

Path path_of(const Record& record) {
  if (record.device == "cpu") return Path::kHost;
  const Scheme* const scheme = known_scheme(record.scheme);
  if (scheme == nullptr || !scheme->on_device) return Path::kThroughHost;
  return record.device.find(" to ") == std::string::npos ? Path::kSameGpu : Path::kPeerGpu;
}

// What a scheme's workers read.
enum class Reads { kAny, kSlots, kOwnMemory };

bool reads(std::string_view name, Reads how) {
  const Scheme* const scheme = known_scheme(name);
  if (how == Reads::kAny || scheme == nullptr) return how == Reads::kAny;
  return how == Reads::kSlots ? scheme->maps_once : scheme->to_own_memory;
}

// A row applies to records of at least so many bytes.
struct Row {
  Path path;
  Reads reads;
  std::string_view scenario;
  std::uint64_t least_bytes;
  Goal target;
};
constexpr auto kRatio = Goal::Of::kRatio;
constexpr std::array<Row, 28> kRows = {{
    {Path::kHost, Reads::kAny, "send", kGiB, {kRatio, 1.15}},
    {Path::kHost, Reads::kAny, "send_cast", kGiB, {kRatio, 1.25}},
    {Path::kHost, Reads::kAny, "shards", kGiB, {kRatio, 1.15}},
    {Path::kHost, Reads::kAny, "durable", kGiB, {kRatio, 1.15}},
    {Path::kHost, Reads::kAny, "send_small", 0, {kRatio, 4}},
    {Path::kHost, Reads::kAny, "many_tensors", 0, {kRatio, 2}},
    {Path::kHost, Reads::kAny, "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kHost, Reads::kAny, "stall_cpu", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kHost, Reads::kAny, "send_async", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, Reads::kAny, "send", kGiB, {kRatio, 1.15}},
    {Path::kSameGpu, Reads::kAny, "send_after_pack", 0, {Goal::Of::kP50Seconds, 100e-6}},
    {Path::kSameGpu, Reads::kAny, "send_async", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, Reads::kAny, "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
    {Path::kPeerGpu, Reads::kOwnMemory, "send", kGiB, {kRatio, 1.12}},
    {Path::kPeerGpu, Reads::kOwnMemory, "broadcast", kGiB, {kRatio, 1.03}},
    {Path::kPeerGpu, Reads::kOwnMemory, "broadcast", 0, {kRatio, 2}},
    {Path::kPeerGpu, Reads::kSlots, "send", kGiB, {kRatio, 1.2}},
    {Path::kPeerGpu, Reads::kAny, "peer_copy", kGiB, {kRatio, 1.05}},
    {Path::kSameGpu, Reads::kOwnMemory, "death", 0, {Goal::Of::kP50Seconds, 1.5}},
    {Path::kSameGpu, Reads::kOwnMemory, "death_stopped", 0, {Goal::Of::kP50Seconds, 3.5}},
    {Path::kPeerGpu, Reads::kOwnMemory, "death", 0, {Goal::Of::kP50Seconds, 1.5}},
    {Path::kPeerGpu, Reads::kOwnMemory, "death_stopped", 0, {Goal::Of::kP50Seconds, 3.5}},
    {Path::kPeerGpu, Reads::kSlots, "death", 0, {Goal::Of::kP50Seconds, 0.3}},
    {Path::kPeerGpu, Reads::kOwnMemory, "joiner", 0, {kRatio, 1.05}},
    {Path::kPeerGpu, Reads::kOwnMemory, "throughput", kGiB, {kRatio, 1 / 0.90}},
    {Path::kPeerGpu, Reads::kSlots, "throughput", kGiB, {kRatio, 1 / 0.97}},
    {Path::kThroughHost, Reads::kAny, "send", kGiB, {kRatio, 1.15}},
    {Path::kThroughHost, Reads::kAny, "stall", 0, {Goal::Of::kP99Seconds, 100e-6}},
}};

}  // namespace

std::optional<Goal> target_of(const Record& record) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& row) {
    return row.path == path_of(record) && reads(record.scheme, row.reads) && row.scenario == record.scenario &&
           record.bytes >= row.least_bytes;
  });
  if (row == kRows.end()) return std::nullopt;
  return row->target;
}

bool broadcasts(std::string_view scheme) { return reads(scheme, Reads::kOwnMemory); }

FlatCopy::Into slot_memory_of(std::string_view scheme) {
  const Scheme* const known = known_scheme(scheme);
  return known != nullptr && known->keeps_files ? FlatCopy::Into::kFile : FlatCopy::Into::kMemfd;
}

}  // namespace bascule::bench
