#include <bascule/bench/footprint.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

namespace bascule::bench {
namespace {

std::optional<std::uint64_t> number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// "7f12a000-7f13b000 r--s …": the first line of a mapping.
std::optional<std::pair<std::uint64_t, std::uint64_t>> range_of(std::string_view line) {
  const std::size_t dash = line.find('-'), colon = line.find(':');
  if (dash == std::string_view::npos || colon < dash) return std::nullopt;
  const auto begin = number(line.substr(0, dash), 16), end = number(line.substr(dash + 1), 16);
  if (!begin || !end) return std::nullopt;
  return std::pair(*begin, *end);
}

std::uint64_t entries(const char* folder) {
  return static_cast<std::uint64_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

}  // namespace

Footprint memory_of_smaps(std::string_view smaps, const std::function<bool(std::uint64_t, std::uint64_t)>& is_slot) {
  Footprint print;
  bool slot = false;
  while (!smaps.empty()) {
    const std::size_t end = std::min(smaps.find('\n'), smaps.size());
    const std::string_view line = smaps.substr(0, end);
    smaps.remove_prefix(std::min(end + 1, smaps.size()));
    if (const auto range = range_of(line)) {
      slot = is_slot(range->first, range->second);
      continue;
    }
    const auto kilobytes = [&line](std::string_view key) -> std::uint64_t {
      if (!line.starts_with(key)) return 0;
      const std::size_t digits = line.find_first_of("0123456789", key.size());
      return digits == std::string_view::npos ? 0 : 1024 * number(line.substr(digits), 10).value_or(0);
    };
    (slot ? print.slots_rss : print.rest_rss) += kilobytes("Rss:");
    if (slot) continue;
    print.rest_pss += kilobytes("Pss:");
    print.rest_private_dirty += kilobytes("Private_Dirty:");
  }
  return print;
}

Footprint footprint(const std::set<const void*>& slot_addresses) {
  std::ifstream file("/proc/self/smaps");
  const std::string smaps{std::istreambuf_iterator<char>(file), {}};
  Footprint print = memory_of_smaps(smaps, [&](std::uint64_t begin, std::uint64_t end) {
    return std::ranges::any_of(slot_addresses, [&](const void* address) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      return at >= begin && at < end;
    });
  });
  print.descriptors = entries("/proc/self/fd") - 1;  // without the one for the folder
  print.threads = entries("/proc/self/task");
  return print;
}

}  // namespace bascule::bench
