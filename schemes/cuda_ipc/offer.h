// What a sender's offer of cuda-ipc says: on which GPU the slots lie, and how large each allocation is.
//
//   byte  0 ..  3   "cuip"
//   byte  4 ..  7   1, the format
//   byte  8 .. 23   the device's UUID
//   byte 24 .. 31   bytes of one slot's allocation, whole granules; all of one layout are the same
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
};

std::string to_bytes(const CudaIpcOffer& offer);
absl::StatusOr<CudaIpcOffer> parse_cuda_ipc_offer(std::string_view bytes);  // INVALID_ARGUMENT: it is none

}  // namespace bascule::inline v0
