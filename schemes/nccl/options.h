// The options of an endpoint that only nccl has.
#pragma once

#include <bascule/transport/scheme_option.h>

namespace bascule::inline v0::nccl {

absl::StatusOr<int> parse_ctas(std::string_view value);

inline constexpr OptionOf<int> kCtas = {
    .name = "ctas",
    .values = "N",
    .help = "how many blocks of each GPU a broadcast takes, 1 to 64; by default NCCL chooses",
    .needs = "whose bytes kernels of a GPU move",
    .parse = parse_ctas};

}  // namespace bascule::inline v0::nccl
