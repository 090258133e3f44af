#include "bench/targets.h"

#include <algorithm>
#include <array>

namespace bascule::bench {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A row holds for records of at least so many bytes; an empty scheme is any.
struct Row {
  std::string_view scheme, scenario;
  std::uint64_t least_bytes;
  Target target;
};
constexpr auto kRatio = Target::Of::kRatio;
constexpr std::array<Row, 9> kRows = {{
    {"shm", "send", kGiB, {kRatio, 1.15}},
    {"memmap", "send", kGiB, {kRatio, 1.15}},
    {"", "send_cast", kGiB, {kRatio, 1.25}},
    {"memmap", "durable", kGiB, {kRatio, 1.15}},
    {"", "send_small", 0, {kRatio, 4}},
    {"", "many_tensors", 0, {kRatio, 2}},
    {"", "stall", 0, {Target::Of::kP99Seconds, 100e-6}},
    {"", "stall_cpu", 0, {Target::Of::kP99Seconds, 100e-6}},
    {"", "send_async", kGiB, {kRatio, 1.05}},
}};

}  // namespace

std::optional<Target> target_of(const Record& record) {
  const auto row = std::ranges::find_if(kRows, [&](const Row& row) {
    return (row.scheme.empty() || row.scheme == record.scheme) && row.scenario == record.scenario &&
           record.bytes >= row.least_bytes;
  });
  if (row == kRows.end()) return std::nullopt;
  return row->target;
}

FlatCopy::Into slot_memory_of(std::string_view scheme) {
  return scheme == "memmap" ? FlatCopy::Into::kFile : FlatCopy::Into::kMemfd;
}

}  // namespace bascule::bench
