// The bytes of cuda-ipc's offer: on which GPU each region of a slot lies, and the size of its allocation. Usually a
// slot is one region; a sharded trainer's slots have one for each of its GPUs.
//
//   byte  0 ..  3   "cuip"
//   byte  4 ..  7   3, the format
//   byte  8 .. 15   1: engines on other GPUs hand versions on (schemes/relay); 0: each copies from the slots
//   then for each region, 24 bytes:
//        0 .. 15    the device's UUID
//       16 .. 23    bytes of the allocation, in whole granules; 0 for a region without bytes, which has no descriptor
//
// All slots of a layout have the same regions. Descriptors come slot by slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

// Where regions begin in a slot; a multiple of the granules in which GPUs allocate memory.
inline constexpr std::uint64_t kRegionGranule = std::uint64_t{2} << 20;

struct CudaIpcRegion {
  std::array<std::uint8_t, 16> device{};
  std::uint64_t bytes = 0;
};
struct CudaIpcOffer {
  std::vector<CudaIpcRegion> regions{};  // at least one
  bool relays = false;

  std::size_t descriptors() const;   // of one slot
  std::uint64_t slot_bytes() const;  // of all regions of a slot
};

std::string to_bytes(const CudaIpcOffer& offer);
absl::StatusOr<CudaIpcOffer> parse_cuda_ipc_offer(std::string_view bytes);  // INVALID_ARGUMENT if not an offer

// A region alone, as SlotMemory::place.
std::string to_bytes(const CudaIpcRegion& region);
absl::StatusOr<CudaIpcRegion> parse_cuda_ipc_region(std::string_view bytes);

}  // namespace bascule::inline v0
