// The memory of one slot, as the ring owns it and schemes carry it to workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transport/posix/mapping.h"
#include "transport/posix/unique_fd.h"

namespace bascule {

// A region that has a descriptor: a memfd or a file; device memory is a further kind of the same.
struct SlotMemory {
  UniqueFd descriptor;            // what a worker maps
  Mapping mapping;                // the sender's own, writable
  std::uint64_t bytes = 0;        // of the layout; the mapping may be longer: the rest of a page, a file's header
  std::uint64_t data_offset = 0;  // where they begin in the mapping
  std::string description;        // for reports: "memfd, 4 KiB pages (…)"

  std::span<std::byte> writable() { return mapping.writable().subspan(data_offset, bytes); }
};

}  // namespace bascule
