// The order of names by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace bascule::inline v0 {

// Returns the numbers of the names, first the name that is the least. Of equal names any may come first. Names of
// tensors have much in common, so eight bytes at a time are compared, those first in which names differ.
std::vector<std::uint32_t> name_order(std::span<const std::string_view> names);

}  // namespace bascule::inline v0
