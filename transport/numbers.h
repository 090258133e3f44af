// Numbers in options, as people write them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bascule::inline v0 {

// Returns the number that `text` is, if it is made of digits alone (no sign, no space, no base) and fits.
inline std::optional<std::uint64_t> plain_number(std::string_view text) {
  std::uint64_t number = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// The same, if the number is from `least` to `most`.
inline std::optional<int> plain_number(std::string_view text, int least, int most) {
  const std::optional<std::uint64_t> number = plain_number(text);
  if (!number || *number > static_cast<std::uint64_t>(most) || static_cast<int>(*number) < least) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace bascule::inline v0
