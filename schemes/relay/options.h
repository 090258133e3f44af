// The options of schemes whose engines copy versions from each other.
#pragma once

#include <vector>

#include <bascule/transport/scheme_option.h>

namespace bascule::inline v0 {

// The routes between engines on other GPUs of the host.
enum class RelayShape { kOff, kChain, kTree };

namespace relay {

absl::StatusOr<RelayShape> parse_shape(std::string_view value);

inline constexpr OptionOf<RelayShape> kShape = {
    .name = "relay",
    .values = "off|chain|tree|auto",
    .help = "how engines on other GPUs hand versions on to each other; off by default, chain for a scheme that relays",
    .needs = "whose engines hand versions on to each other",
    .parse = parse_shape};

inline std::vector<SchemeOption> options() { return {kShape}; }

}  // namespace relay
}  // namespace bascule::inline v0
