// The memory of one slot. The sender's ring owns it, and schemes offer it to workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/mapping.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

class HostWindow;  // transport/device.h

// A region of a slot that another process made and writes.
struct OtherRegion {
  ProcessFd descriptor;  // what a worker maps; none if the region has no bytes
  std::string place;     // SlotMemory::place there
};

// What a process keeps of a slot that it has mapped, so that it can offer the memory itself once the slot's sender is
// gone (Scheme::hands_on).
struct SlotHandle {
  ProcessFd descriptor;
  std::string place{};  // SlotMemory::place
};

// Memory that has a descriptor: a memfd, a file, or device memory. For a slot of several regions it is region 0, which
// rank 0 writes, or in another rank's process that rank's region.
struct SlotMemory {
  ProcessFd descriptor;           // what a worker maps
  Mapping mapping;                // the sender's own, writable unless it is adopted; none for device memory
  std::uint64_t bytes = 0;        // the layout's size; the mapping may add a file's header and the rest of a page
  std::uint64_t data_offset = 0;  // where the layout's bytes begin in the mapping
  int device = kHost;             // the device whose memory it is, or kHost
  std::shared_ptr<std::byte> device_memory{};  // where the sender may write, if on a device
  std::string description{};                   // for reports: "memfd, 4 KiB pages (…)"
  std::string place{};                         // a region's: where it lies, in bytes that only the scheme understands
  std::vector<OtherRegion> others{};           // regions 1, 2, … of the slot
  std::shared_ptr<HostWindow> window{};        // lets a device pack into host memory; destroyed before the mapping

  // Whether all `bytes` can be written.
  bool is_whole() const {
    if (device != kHost) return device_memory != nullptr;
    const std::uint64_t mapped = mapping.bytes().size();
    return data_offset <= mapped && bytes <= mapped - data_offset;
  }
  // Where the layout's bytes begin, on the device if it is device memory.
  const std::byte* data() const { return device != kHost ? device_memory.get() : mapping.bytes().data() + data_offset; }
  std::span<std::byte> writable() {
    if (device != kHost) return {device_memory.get(), bytes};
    return mapping.writable().subspan(data_offset, bytes);
  }
};

}  // namespace bascule::inline v0
