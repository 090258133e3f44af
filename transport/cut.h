// Cut: how a tensor is divided into boxes that lie in different regions of a slot (docs/design/regions.md). Most
// tensors of a model are divided alike, so a layout has a table of cuts, and each tensor names one.
//
//   [9, 8] and [5, 3] by rows over three regions:   pieces {3}; boxes: region 0 [0, 1), 1 [1, 2), 2 [2, 3)
//   [9, 8] by columns over two:                     pieces {1, 2}; boxes: region 0 [0, 1), 1 [1, 2)
//   any tensor, whole, in region 1:                 pieces {}; boxes: region 1
//
// A dimension of n elements is divided into p pieces of ceil(n / p) elements; the last ones may be shorter or empty, as
// torch.chunk makes them. So tensors of different sizes can have the same cut. Where boxes do not follow that rule, p
// is n, and each piece is one element.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// A box of a tensor and the region that it lies in.
struct CutBox {
  std::uint32_t region = 0;
  std::vector<std::int64_t> offset, shape;  // elements; one number per dimension
};

struct Cut {
  std::vector<std::int64_t> pieces{};  // for each dimension; those that are not cut have 1, or are left out at the end
  std::vector<std::uint32_t> regions{};  // one per box; boxes are in row-major order of where they begin
  std::vector<std::int64_t> bounds{};    // for each box, in each dimension of more than one piece: its first piece, and
                                         // the one after its last
  friend auto operator<=>(const Cut&, const Cut&) = default;

  // The cut of these boxes, which must cover the tensor exactly, as plan_shards() proves, in any order.
  static Cut of(const TensorSpec& spec, std::vector<CutBox> boxes);

  // INVALID_ARGUMENT if the cut comes from a peer and is none: its boxes do not cover the pieces exactly, or a box lies
  // in none of so many regions.
  absl::Status check(std::size_t in_regions) const;
  // INVALID_ARGUMENT if a tensor of this shape cannot be cut in this way.
  absl::Status check_fits(const TensorSpec& spec) const;
  // The boxes of a tensor for which check_fits() is OK. Some may have no elements.
  std::vector<CutBox> boxes(std::span<const std::int64_t> shape) const;
};

}  // namespace bascule::inline v0
