// The memory of one slot, as the ring owns it and schemes carry it to workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/posix/mapping.h"
#include "transport/posix/unique_fd.h"
#include "transport/tensor.h"

namespace bascule {

class HostWindow;  // transport/device.h

// A region that has a descriptor: a memfd, a file, or device memory.
struct SlotMemory {
  UniqueFd descriptor;            // what a worker maps
  Mapping mapping;                // the sender's own, writable; none of device memory
  std::uint64_t bytes = 0;        // of the layout; the mapping may be longer: the rest of a page, a file's header
  std::uint64_t data_offset = 0;  // where they begin in the mapping
  int device = kHost;             // else: whose memory it is
  std::shared_ptr<std::byte> device_memory{};  // and where the sender may write it
  std::string description{};                   // for reports: "memfd, 4 KiB pages (…)"
  std::shared_ptr<HostWindow> window{};        // of the device that packs into host memory; goes before the mapping

  // Addresses of the device, where it is one.
  std::span<std::byte> writable() {
    if (device != kHost) return {device_memory.get(), bytes};
    return mapping.writable().subspan(data_offset, bytes);
  }
};

}  // namespace bascule
