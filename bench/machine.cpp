#include <bascule/bench/machine.h>

#include <sys/statfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include <bascule/kernels/control_group.h>
#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

constexpr const char* kUnknown = "unknown";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.empty() ? kUnknown : line;
}

// The value of the first line "key: value" of a kernel file.
std::string value_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || absl::StripAsciiWhitespace(line.substr(0, colon)) != status_internal::piece(key))
      continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return kUnknown;
}

std::uint64_t meminfo_bytes(std::string_view key) {
  const std::string text = value_of("/proc/meminfo", key);  // "23456 kB"
  std::uint64_t kilobytes = 0;
  return absl::SimpleAtoi(text.substr(0, text.find(' ')), &kilobytes) ? kilobytes * 1024 : 0;
}

// "always [never] deny": the word in brackets.
std::string chosen(const std::string& line) {
  const std::size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close < open ? kUnknown : line.substr(open + 1, close - open - 1);
}

std::string filesystem_of(const std::filesystem::path& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return kUnknown;
  switch (status.f_type) {
    case 0x01021994: return "tmpfs";
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x794c7630: return "overlay";
    default: return cat("0x", absl::Hex(status.f_type));
  }
}

}  // namespace

std::uint64_t available_memory_bytes() {
  const std::uint64_t machine = meminfo_bytes("MemAvailable");
  return std::min(machine, kernels::control_group_limits().memory_left_bytes.value_or(machine));
}

Machine this_machine(const std::filesystem::path& folder) {
  utsname kernel{};
  ::uname(&kernel);
  return {.facts = {
              {"cpu", value_of("/proc/cpuinfo", "model name")},
              {"cores", std::to_string(kernels::usable_cores())},
              {"memory_bytes", std::to_string(meminfo_bytes("MemTotal"))},
              {"kernel", kernel.release},
              {"shmem_enabled", chosen(first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled"))},
              {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
              {"filesystem", filesystem_of(folder)},
          }};
}

std::string Machine::difference(const Machine& other) const {
  std::string text;
  const auto compare = [&](const std::string& fact) {
    const auto value = [&](const Machine& machine) {
      const auto found = machine.facts.find(fact);
      return found == machine.facts.end() ? std::string(kUnknown) : found->second;
    };
    const bool both = facts.contains(fact) && other.facts.contains(fact);
    if (value(*this) != value(other) && (both || fact != "gpu"))  // if one run used no GPU, it may be the same machine
      text += cat(text.empty() ? "" : "; ", fact, ": ", value(*this), " and ", value(other));
  };
  for (const char* fact : {"cpu", "cores", "kernel", "shmem_enabled", "governor", "gpu"}) compare(fact);
  return text;
}

}  // namespace bascule::bench
