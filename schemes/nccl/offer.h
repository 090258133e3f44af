// The bytes of nccl's offer: the sender's environment, and the size of a piece.
//
//   byte  0 ..  3   "nccl"
//   byte  4 ..  7   1, the format
//   byte  8 .. 15   bytes of a piece
//   byte 16 ..      the environment (environment.h)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/environment.h>

namespace bascule::inline v0::nccl {

struct NcclOffer {
  Environment environment;
  std::uint64_t piece_bytes = 0;  // whole tiles of the digest
};

std::string to_bytes(const NcclOffer& offer);
absl::StatusOr<NcclOffer> parse_offer(std::string_view bytes);  // INVALID_ARGUMENT if not an offer

}  // namespace bascule::inline v0::nccl
