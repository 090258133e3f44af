#include <bascule/schemes/relay/options.h>

#include <array>

#include <bascule/transport/status.h>

namespace bascule::inline v0::relay {

// Within a host no shape is faster than a chain (docs/design/scale.md); with one worker a chain is a plain copy.
absl::StatusOr<RelayShape> parse_shape(std::string_view value) {
  constexpr std::array<std::string_view, 4> kNames = {"off", "chain", "tree", "auto"};
  BASCULE_ASSIGN(const std::size_t which, one_of(kNames, value));
  return which < 3 ? static_cast<RelayShape>(which) : RelayShape::kChain;
}

}  // namespace bascule::inline v0::relay
