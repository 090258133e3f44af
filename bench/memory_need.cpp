#include <bascule/bench/memory_need.h>

#include <array>
#include <cmath>
#include <cstdio>

#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

std::string three_digits(double value, const char* unit) {
  std::array<char, 48> text{};
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  (void)std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, unit);
  return text.data();
}

}  // namespace

std::string shown_bytes(double bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (std::abs(bytes) < 1024) return cat(std::llround(bytes), " B");
  std::size_t unit = 0;
  double value = bytes / 1024;
  for (; std::abs(value) >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return three_digits(value, kUnits[unit]);
}

std::string shown_seconds(double seconds) {
  if (seconds >= 1) return three_digits(seconds, "s");
  if (seconds >= 1e-3) return three_digits(seconds * 1e3, "ms");
  return three_digits(seconds * 1e6, "us");
}

absl::Status check_fits(const std::vector<Need>& needs, std::uint64_t available_bytes) {
  std::uint64_t sum = 0;
  std::string text;
  for (const Need& need : needs) {
    sum += need.count * need.bytes;
    text += cat(text.empty() ? "" : " + ", need.count, " ", need.what, " of ",
                shown_bytes(static_cast<double>(need.bytes)));
  }
  const std::uint64_t kept = available_bytes / 16;
  if (sum <= available_bytes - kept) return absl::OkStatus();
  return absl::ResourceExhaustedError(cat("does not fit: ", text, " = ", shown_bytes(static_cast<double>(sum)), "; ",
                                          shown_bytes(static_cast<double>(available_bytes)),
                                          " are available, of which ", shown_bytes(static_cast<double>(kept)),
                                          " are kept free"));
}

}  // namespace bascule::bench
