#include <bascule/trainer_ref/grpo/learn/device_memory.h>

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

std::int64_t free_on_host() {
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);)
    if (line.starts_with("MemAvailable:")) free = std::stoll(line.substr(13)) * 1024;
  if (const auto group = kernels::control_group_limits().memory_left_bytes)
    free = std::min(free, static_cast<std::int64_t>(*group));
  return free;
}

}  // namespace

std::optional<DevicePeak> peak_on(at::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  const auto statistics = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return DevicePeak{.allocated_bytes = statistics.allocated_bytes[kAll].peak,
                    .kept_bytes = statistics.reserved_bytes[kAll].peak};
}

void forget_peak(at::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(at::kCUDA)->resetPeakStats(device.index());
}

// LibTorch's statistics do not include slots.
std::string measured_beside(const MemoryPlan& plan, at::Device device) {
  const std::optional<DevicePeak> peak = peak_on(device);
  if (!peak) return "";
  return cat("memory: planned ", gib(plan.peak_bytes_of_libtorch()), ", measured ", gib(peak->allocated_bytes),
             " at the peak, ", gib(peak->kept_bytes),
             " with what LibTorch keeps; slots, a shared base and the GPU's context not included (", to_string(plan),
             ")");
}

std::int64_t free_bytes_on(at::Device device) {
  if (!device.is_cuda()) return free_on_host();
  return static_cast<std::int64_t>(at::getDeviceAllocator(at::kCUDA)->getMemoryInfo(device.index()).first);
}

absl::Status device_failed(at::Device device, const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  // The CPU's allocator has no error type for it.
  const bool short_of_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                               what.find("can't allocate memory") != std::string_view::npos;
  return absl::ResourceExhaustedError(
      cat("training on ", device.str(), ": ", what,
          short_of_memory ? " (--gradient-checkpointing or a smaller --micro-batch-tokens needs less memory; --dry-run "
                            "says how much)"
                          : ""));
}

}  // namespace bascule::ref
