// What this process holds of the system: resident memory, split into the slots and all else, and descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string_view>

namespace bascule::bench {

struct Footprint {
  // Resident bytes of the mappings that hold slots, and of all others: program, libraries, heap, stacks.
  std::uint64_t slots_rss = 0, rest_rss = 0;
  std::uint64_t rest_pss = 0;            // the same, pages that n processes share counted as 1/n each
  std::uint64_t rest_private_dirty = 0;  // what would be gone with this process alone
  std::uint64_t descriptors = 0, threads = 0;
};

// `slot_addresses`: an address within each slot's mapping; the mappings that hold one are the slots'.
Footprint footprint(const std::set<const void*>& slot_addresses);

// The same, of a text as /proc/self/smaps has it.
Footprint memory_of_smaps(std::string_view smaps, const std::function<bool(std::uint64_t, std::uint64_t)>& is_slot);

}  // namespace bascule::bench
