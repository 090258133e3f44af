#include <bascule/transport/program/byte_size.h>

#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace bascule::inline v0 {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Unit, 8> kUnits{{{"", 1},
                                      {"B", 1},
                                      {"KB", 1'000},
                                      {"MB", 1'000'000},
                                      {"GB", 1'000'000'000},
                                      {"KiB", 1 << 10},
                                      {"MiB", 1 << 20},
                                      {"GiB", 1 << 30}}};

}  // namespace

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit_name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& unit : kUnits) {
    if (failure != std::errc{} || number < 0 || unit.name != unit_name) continue;
    if (number > std::numeric_limits<std::int64_t>::max() / unit.bytes) break;
    size->bytes = number * unit.bytes;
    return true;
  }
  *error = "such as 1048576, 256MiB or 2GB";
  return false;
}

std::string AbslUnparseFlag(const ByteSize& size) {
  for (std::size_t i = kUnits.size(); i-- > 5;)
    if (size.bytes != 0 && size.bytes % kUnits[i].bytes == 0)
      return std::to_string(size.bytes / kUnits[i].bytes).append(kUnits[i].name);
  return std::to_string(size.bytes);
}

}  // namespace bascule::inline v0
