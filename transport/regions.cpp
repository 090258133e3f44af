#include <bascule/transport/regions.h>

#include <bascule/transport/status.h>
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

absl::StatusOr<Regions> Regions::make(std::span<const std::uint64_t> bytes) {
  if (bytes.size() > kMostRegions)
    return invalid_argument("expected at most ", kMostRegions, " regions of a version, found ", bytes.size());
  Regions made;
  std::uint64_t page = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t begin = page * kernels::kPageBytes;
    if (bytes[i] > kMostModelBytes - begin)
      return invalid_argument("region ", i, " has ", bytes[i], " bytes and begins at byte ", begin,
                              " of its version; expected at most ", kMostModelBytes, " bytes in all");
    made.list_.push_back({.first_page = page, .bytes = bytes[i]});
    made.bytes_ = begin + bytes[i];
    page += kernels::pages_of(bytes[i]);
    if (page > kMostModelBytes / kernels::kPageBytes)
      return invalid_argument("regions 0 to ", i, " have more than ", kMostModelBytes, " bytes in whole pages");
  }
  return made;
}

absl::Status Regions::check(std::span<const DigestTable> tables, const Digest& digest,
                            const kernels::TileTotal* sum) const {
  if (tables.size() != list_.size())
    return invalid_argument("expected the digest tables of ", list_.size(), " regions, found ", tables.size());
  kernels::TileTotal all;
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (const std::uint64_t tiles = kernels::tiles_of(list_[i].bytes); tables[i].size() != tiles)
      return invalid_argument("the digest table of region ", i, " has ", tables[i].size(), " tiles; expected ", tiles,
                              " for ", list_[i].bytes, " bytes");
    if (sum == nullptr) all.add(kernels::sum_of(tables[i]));
  }
  if (const Digest found = (sum != nullptr ? *sum : all).finish(bytes_); found != digest)
    return absl::DataLossError(cat("the digest tables add up to ", to_hex(found), ", expected the version's digest ",
                                   to_hex(digest), "; they belong to other bytes"));
  return absl::OkStatus();
}

}  // namespace bascule::inline v0
