// Regions: the memory of which a version consists. A region is memory that one process wrote, extended by zeros to
// whole pages; page numbers run on over the regions of a version, so their digest tables add up to its digest.
// docs/design/regions.md explains the terms.
//
//   region 0 | page 0 | page 1 | page 2, short |    region 1 | page 3 | page 4, short |
//              first_page 0, bytes 10,000                      first_page 3, bytes 5,000      version: 17,288 bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/digest_table.h>

namespace bascule::inline v0 {

inline constexpr std::size_t kMostRegions = 1024;

struct Region {
  std::uint64_t first_page = 0;  // the number of its first page in the version
  std::uint64_t bytes = 0;       // as written, without the zeros
  friend bool operator==(const Region&, const Region&) = default;
};

// A region's digest table: tiles_of(bytes) totals, as kernels::pack and kernels::digest make them.
using DigestTable = std::vector<kernels::TileTotal>;

class Regions {
 public:
  // The regions of a version, in the order of their writers, with `bytes[i]` bytes each. A region may be empty. Returns
  // INVALID_ARGUMENT for more than kMostRegions regions, or more than kMostModelBytes in all.
  static absl::StatusOr<Regions> make(std::span<const std::uint64_t> bytes);

  std::span<const Region> list() const { return list_; }
  // The version's length, which its digest covers: where its last region ends, after whole pages of the others.
  std::uint64_t bytes() const { return bytes_; }

  // Returns OK if these tables, one per region, are the tables of a version with this digest. INVALID_ARGUMENT names a
  // region whose table has another length. DATA_LOSS means that at least one table is wrong; no one can tell which.
  // If `sum` is given, it is the sum of all totals, which are then not read again.
  absl::Status check(std::span<const DigestTable> tables, const Digest& digest,
                     const kernels::TileTotal* sum = nullptr) const;

 private:
  std::vector<Region> list_;
  std::uint64_t bytes_ = 0;
};

}  // namespace bascule::inline v0
