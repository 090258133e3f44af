// The resources of this process: resident memory, split into slots and the rest, and descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string_view>

namespace bascule::bench {

struct Footprint {
  // Resident bytes of the mappings that hold slots, and of all other mappings: program, libraries, heap, stacks.
  std::uint64_t slots_rss = 0, rest_rss = 0;
  std::uint64_t rest_pss = 0;            // like rest_rss, with a page that n processes share counted as 1/n
  std::uint64_t rest_private_dirty = 0;  // freed if only this process ends
  std::uint64_t descriptors = 0, threads = 0;
};

// `slot_addresses` has an address within each slot's mapping.
Footprint footprint(const std::set<const void*>& slot_addresses);

// Returns the memory that `smaps`, a text in the format of /proc/self/smaps, states.
Footprint memory_of_smaps(std::string_view smaps, const std::function<bool(std::uint64_t, std::uint64_t)>& is_slot);

}  // namespace bascule::bench
