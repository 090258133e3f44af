// The bytes of cuda-ipc's offer: the GPU of the slots, and the size of each allocation.
//
//   byte  0 ..  3   "cuip"
//   byte  4 ..  7   2, the format
//   byte  8 .. 23   the device's UUID
//   byte 24 .. 31   bytes of one slot's allocation, in whole granules; equal for all slots of a layout
//   byte 32 .. 39   1: engines on other GPUs hand versions on (schemes/relay); 0: each copies from the slots
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::inline v0 {

struct CudaIpcOffer {
  std::array<std::uint8_t, 16> device{};
  std::uint64_t slot_bytes = 0;
  bool relays = false;
};

std::string to_bytes(const CudaIpcOffer& offer);
absl::StatusOr<CudaIpcOffer> parse_cuda_ipc_offer(std::string_view bytes);  // INVALID_ARGUMENT if not an offer

}  // namespace bascule::inline v0
