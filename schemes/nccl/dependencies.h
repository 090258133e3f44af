// The dependencies of both ends of nccl: NCCL itself and the devices, or a test's fakes.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include <bascule/schemes/nccl/comm_group.h>
#include <bascule/schemes/nccl/library.h>
#include <bascule/schemes/nccl/place.h>

namespace bascule::inline v0::nccl {

// Between two pieces the wire is idle for some 30 us, until a non-blocking NCCL call returns. A piece takes 750 us over
// NVLink.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{256} << 20;

struct Dependencies {
  std::function<absl::StatusOr<const Library*>()> library;
  FindPlace place;
  std::uint64_t piece_bytes = 0;  // whole tiles
  CommGroupLimits limits{};       // of a sender
};

}  // namespace bascule::inline v0::nccl
