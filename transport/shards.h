// Shards: which rank sends which part of each tensor. Every rank states the boxes that it holds. plan_shards() proves
// that together they cover each tensor exactly, and gives each box one owner. A pure function: any thread.
//
//   w [9, 8]   rank 0 holds rows 0-2, rank 1 rows 3-5, ranks 2 and 3 both rows 6-8 (replicas: one of them owns it)
//
// Proof. The boxes of a tensor, replicas counted once, cover each element exactly once if and only if their corners
// cancel, except for the corners of the tensor itself. A corner counts +1 or -1: the sign changes with each dimension
// in which it lies at the box's end. For a point that is smaller in no dimension than a corner, that corner counts; so
// the sum over all such corners is the number of boxes that contain the point. In row-major order the first corner that
// is left over is the first element that is covered wrongly, as often as its count says. The cost for n boxes that
// cut d dimensions is a sort of n * 2^d corners, however the boxes lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMostShardRanks = 1024;
inline constexpr std::size_t kMostBoxesOfTensor = 100'000;  // over all ranks, with replicas
inline constexpr std::size_t kMostBoxes = std::size_t{1} << 22;
inline constexpr std::size_t kMostCutDimensions = 4;  // of one tensor

// A part of one tensor that a rank holds. Boxes without elements may lie anywhere, even outside the tensor.
struct ShardBox {
  std::uint32_t tensor = 0;              // index into the specs
  std::span<const std::int64_t> offset;  // one number per dimension; borrowed
  std::span<const std::int64_t> shape;
};

// Which boxes each rank sends.
struct ShardPlan {
  struct Rank {
    std::vector<std::uint32_t> boxes;  // indices into the rank's boxes, by tensor, then by offset in row-major order
    std::uint64_t bytes = 0;           // of these boxes
  };
  std::vector<Rank> ranks;
};

// `boxes[r]` are the boxes of rank r, in any order. Boxes may be equal, as replicas on several ranks; two that overlap
// must be equal. A replica's owner is the rank with the fewest bytes so far, and of several the lowest; large boxes are
// given away first. The same arguments give the same plan everywhere.
//
// Returns INVALID_ARGUMENT for more than the numbers above, a tensor that does not exist, a box outside its tensor, and
// for the first tensor that is not covered exactly. The text names the tensor and the first hole, or the first element
// that is covered twice with the two boxes and their ranks.
absl::StatusOr<ShardPlan> plan_shards(std::span<const TensorSpec> specs, std::span<const std::vector<ShardBox>> boxes);

}  // namespace bascule::inline v0
