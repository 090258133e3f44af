// The options of an endpoint that only memmap has.
#pragma once

#include <bascule/transport/scheme_option.h>

namespace bascule::inline v0::memmap {

inline constexpr OptionOf<bool> kDurable = {
    .name = "durable",
    .values = "off|on",
    .help = "on: a send returns only when the version is also on the disk; off by default",
    .needs = "that keeps its slots in files",
    .parse = off_or_on};

inline constexpr OptionOf<bool> kFresh = {
    .name = "fresh",
    .values = "off|on",
    .help = "on: each version gets its own file, for readers that take no lock; off by default",
    .needs = "that keeps its slots in files",
    .parse = off_or_on};

}  // namespace bascule::inline v0::memmap
