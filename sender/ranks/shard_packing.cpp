#include <bascule/sender/ranks/shard_packing.h>

#include <algorithm>
#include <utility>

#include <bascule/kernels/gather.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/merge_dimensions.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Numbers = std::span<const std::int64_t>;

// The first dimension of the runs of a box in its dense tensor. A run has that dimension and all inner ones; the box
// takes the inner ones whole.
std::size_t first_of_run(Numbers box, Numbers tensor) {
  std::size_t first = box.size();
  while (first > 0 && (first == box.size() || box[first] == tensor[first])) --first;
  return first;
}

absl::Status check_shard(const TensorSpec& spec, const Shard& shard) {
  // Each send comes here for each shard, so the text is made only for an error.
  const auto what = [&] { return cat("a shard of tensor ", to_string(spec)); };
  if (shard.offset.size() != spec.shape.size() || shard.shape.size() != spec.shape.size())
    return invalid_argument(what(), " has ", shard.offset.size(), " offsets and ", shard.shape.size(),
                            " sizes; expected one of each per dimension");
  if (!shard.strides.empty() && shard.strides.size() != shard.shape.size())
    return invalid_argument(what(), " has ", shard.strides.size(), " strides; expected none, or one per dimension");
  BASCULE_ASSIGN(const std::uint64_t bytes,
                 checked_byte_count(spec.name, spec.dtype, shard.shape, "a shard of tensor"));
  if (bytes > 0 && shard.data == nullptr) return invalid_argument(what(), " has no data");
  return absl::OkStatus();
}

}  // namespace

// ---- what a rank holds ----

absl::StatusOr<HeldShards> HeldShards::make(std::unique_ptr<ShardSource> source, const Scheme& scheme) {
  if (!source) return invalid_argument("register_shards: no tensors were given");
  if ((source->device() != kHost) != scheme.on_device)
    return unimplemented("the shards lie in ", place_name(source->device()), ", and ", scheme.name, " keeps its slots ",
                         scheme.on_device ? "on a device; use " : "in host memory; use ",
                         names_of_schemes(/*on_device=*/!scheme.on_device));
  HeldShards made;
  made.source_ = std::move(source);
  BASCULE_ASSIGN(made.tensors_, made.source_->tensors());
  if (made.tensors_.empty()) return invalid_argument("register_shards: the model has no tensors");
  for (const ShardedTensor& tensor : made.tensors_) {
    BASCULE_TRY(check_tensor_name(tensor.spec.name));
    BASCULE_TRY(checked_byte_count(tensor.spec.name, tensor.spec.dtype, tensor.spec.shape).status());
    for (const Shard& shard : tensor.shards) BASCULE_TRY(check_shard(tensor.spec, shard));
  }
  made.registered_.assign(made.tensors_.begin(), made.tensors_.end());
  return made;
}

std::vector<TensorSpec> HeldShards::specs() const {
  std::vector<TensorSpec> specs;
  for (const ShardedTensor& tensor : registered_) specs.push_back(tensor.spec);
  return specs;
}

std::vector<std::int64_t> HeldShards::numbers() const {
  std::vector<std::int64_t> numbers;
  for (std::size_t t = 0; t < registered_.size(); ++t)
    for (const Shard& shard : registered_[t].shards) {
      numbers.push_back(static_cast<std::int64_t>(t));
      numbers.insert(numbers.end(), shard.offset.begin(), shard.offset.end());
      numbers.insert(numbers.end(), shard.shape.begin(), shard.shape.end());
    }
  return numbers;
}

absl::StatusOr<bool> HeldShards::refresh() {
  BASCULE_ASSIGN(tensors_, source_->tensors());
  if (tensors_.size() != registered_.size())
    return invalid_argument("the model has ", tensors_.size(), " tensors, registered were ", registered_.size());
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    ShardedTensor& known = registered_[t];
    const ShardedTensor& now = tensors_[t];
    if (now.spec != known.spec)
      return invalid_argument("tensor ", to_string(now.spec), " was registered as ", to_string(known.spec),
                              "; its name, type and shape must stay");
    if (now.shards.size() != known.shards.size())
      return invalid_argument("tensor ", to_string(now.spec), " has ", now.shards.size(),
                              " shards here, registered were ", known.shards.size(),
                              "; make a new sender on all ranks for another sharding");
    for (std::size_t s = 0; s < now.shards.size(); ++s) {
      if (now.shards[s].offset != known.shards[s].offset || now.shards[s].shape != known.shards[s].shape)
        return invalid_argument("a shard of tensor ", to_string(now.spec),
                                " lies elsewhere in the tensor than when it was registered, or has another shape; make "
                                "a new sender on all ranks for another sharding");
      BASCULE_TRY(check_shard(now.spec, now.shards[s]));
      other_strides_ |= now.shards[s].strides != known.shards[s].strides;
      known.shards[s].strides = now.shards[s].strides;
    }
  }
  return std::exchange(other_strides_, false);
}

// ---- how it is written ----

absl::StatusOr<ShardPacking> ShardPacking::make(const Layout& layout, const HeldShards& held,
                                                std::span<const std::uint32_t> owned) {
  ShardPacking made;
  std::vector<Box> all;
  for (std::uint32_t t = 0; t < held.tensors().size(); ++t)
    for (std::uint32_t s = 0; s < held.tensors()[t].shards.size(); ++s) all.push_back({t, s});
  std::size_t runs_of_all = 0;
  for (const std::uint32_t number : owned) {
    if (number >= all.size()) return invalid_argument("rank 0 names box ", number, " of ", all.size());
    const auto [t, s] = all[number];
    const ShardedTensor& tensor = held.tensors()[t];
    const Shard& shard = tensor.shards[s];
    const Placement* const placed = layout.find(tensor.spec.name);
    if (placed == nullptr || placed->spec.shape != tensor.spec.shape)
      return invalid_argument("tensor ", to_string(tensor.spec), " is not in rank 0's layout");
    if (!kernels::can_cast(tensor.spec.dtype, placed->spec.dtype))
      return invalid_argument("tensor ", to_string(tensor.spec), " cannot be cast to ", name_of(placed->spec.dtype));
    const std::size_t first = first_of_run(shard.shape, tensor.spec.shape);
    const std::vector<std::int64_t> dense = dense_strides(tensor.spec.shape), own = dense_strides(shard.shape);
    const Numbers strides = shard.strides.empty() ? Numbers(own) : Numbers(shard.strides);
    const Numbers outer = Numbers(shard.shape).first(first);
    kernels::Segment segment{.tensor = static_cast<std::uint32_t>(made.boxes_.size()),
                             .tensor_dtype = tensor.spec.dtype,
                             .slot_dtype = placed->spec.dtype,
                             .elements = element_count(Numbers(shard.shape).subspan(first))};
    const std::uint64_t runs = element_count(outer);
    if (segment.elements == 0 || runs == 0) continue;
    if (runs > kMostRuns - runs_of_all)
      return absl::ResourceExhaustedError(cat("the shards of this rank lie in more than ", kMostRuns,
                                              " runs of the model (tensor ", to_string(tensor.spec), " has ", runs,
                                              " alone); shard tensors by rows rather than by columns"));
    runs_of_all += runs;
    if (!merge_dimensions(Numbers(shard.shape).subspan(first), strides.subspan(first), Numbers(dense).subspan(first),
                          segment))
      return invalid_argument("a shard of tensor ", to_string(tensor.spec), " lies in more than ", kernels::kMaxRank,
                              " separate strides; make it contiguous");
    made.boxes_.push_back({t, s});
    std::vector<std::int64_t> index(first, 0);
    for (std::uint64_t run = 0; run < runs; ++run) {
      std::int64_t in_slot = 0, in_shard = 0;
      for (std::size_t d = 0; d < shard.shape.size(); ++d) {
        in_slot += (shard.offset[d] + (d < first ? index[d] : 0)) * dense[d];
        if (d < first) in_shard += index[d] * strides[d];
      }
      segment.slot_offset = placed->offset + static_cast<std::uint64_t>(in_slot) * size_of(placed->spec.dtype);
      // Negative strides wrap around, as the sum with the address does.
      segment.tensor_offset = static_cast<std::uint64_t>(in_shard) * size_of(tensor.spec.dtype);
      made.segments_.push_back(segment);
      made.bytes_ += kernels::slot_bytes_of(segment);
      for (std::size_t d = first; d-- > 0;) {
        if (++index[d] < shard.shape[d]) break;
        index[d] = 0;
      }
    }
  }
  std::ranges::sort(made.segments_, {}, &kernels::Segment::slot_offset);

  std::vector<std::uint64_t> covered(kernels::tiles_of(layout.bytes()));  // bytes of each tile
  for (const kernels::Segment& segment : made.segments_) {
    const std::uint64_t end = kernels::slot_end_of(segment);
    for (std::uint64_t at = segment.slot_offset; at < end;) {
      const std::uint64_t tile = at / kernels::kTileBytes;
      const std::uint64_t until = std::min(end, (tile + 1) * kernels::kTileBytes);
      covered[tile] += until - at;
      at = until;
    }
  }
  for (std::size_t tile = 0; tile < covered.size(); ++tile) {
    const std::uint64_t whole =
        std::min<std::uint64_t>(kernels::kTileBytes, layout.bytes() - tile * kernels::kTileBytes);
    made.shares_.push_back(covered[tile] == whole ? kernels::Share::kAll
                           : covered[tile] > 0    ? kernels::Share::kSome
                                                  : kernels::Share::kNone);
  }
  return made;
}

void ShardPacking::mark(SharedTable& table) const {
  for (std::size_t tile = 0; tile < shares_.size(); ++tile)
    if (shares_[tile] == kernels::Share::kAll) table.marks()[tile] = 1;
}

void ShardPacking::write(const HeldShards& held, std::span<std::byte> slot, SharedTable& table, bool digest,
                         kernels::ThreadPool& pool) const {
  std::vector<const std::byte*> addresses;
  for (const auto& [tensor, shard] : boxes_)
    addresses.push_back(static_cast<const std::byte*>(held.tensors()[tensor].shards[shard].data));
  kernels::pack_share(segments_, addresses, slot, shares_, digest ? table.totals() : std::span<kernels::TileTotal>(),
                      pool);
}

}  // namespace bascule::inline v0
