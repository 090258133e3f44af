#include <bascule/sender/ranks/shard_packing.h>

#include <utility>

#include <bascule/kernels/pack.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/merge_dimensions.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Numbers = std::span<const std::int64_t>;

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
  std::vector<Box> all, boxes;
  for (std::uint32_t t = 0; t < held.tensors().size(); ++t)
    for (std::uint32_t s = 0; s < held.tensors()[t].shards.size(); ++s) all.push_back({t, s});
  std::vector<kernels::Segment> segments;
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
    const std::uint64_t elements = element_count(shard.shape);
    if (elements == 0) continue;
    const std::vector<std::int64_t> dense = dense_strides(tensor.spec.shape), own = dense_strides(shard.shape);
    std::int64_t first = 0;  // element of the tensor
    for (std::size_t d = 0; d < shard.shape.size(); ++d) {
      // Rank 0 has proved it of the boxes that this rank stated. If rank 0 is wrong, no memory outside the slot
      // changes.
      if (shard.offset[d] < 0 || shard.offset[d] > tensor.spec.shape[d] - shard.shape[d])
        return invalid_argument("rank 0 names a box that does not lie within tensor ", to_string(tensor.spec));
      first += shard.offset[d] * dense[d];
    }
    kernels::Segment segment{
        .tensor = static_cast<std::uint32_t>(boxes.size()),
        .tensor_dtype = tensor.spec.dtype,
        .slot_dtype = placed->spec.dtype,
        .slot_offset = placed->offset + static_cast<std::uint64_t>(first) * size_of(placed->spec.dtype),
        .elements = elements};
    if (!merge_dimensions(shard.shape, shard.strides.empty() ? Numbers(own) : Numbers(shard.strides), dense, segment))
      return invalid_argument("a shard of tensor ", to_string(tensor.spec), " lies in more than ", kernels::kMaxRank,
                              " separate strides; make it contiguous");
    boxes.push_back({t, s});
    segments.push_back(segment);
  }
  return ShardPacking(std::move(boxes), kernels::SharePlan(std::move(segments), layout.bytes()));
}

void ShardPacking::mark(SharedTable& table) const {
  for (std::size_t tile = 0; tile < plan_.shares().size(); ++tile)
    if (plan_.shares()[tile] == kernels::Share::kAll) table.marks()[tile] = 1;
}

void ShardPacking::write(const HeldShards& held, std::span<std::byte> slot, SharedTable& table, bool digest,
                         kernels::ThreadPool& pool) const {
  std::vector<const std::byte*> addresses;
  addresses.reserve(boxes_.size());
  for (const auto& [tensor, shard] : boxes_)
    addresses.push_back(static_cast<const std::byte*>(held.tensors()[tensor].shards[shard].data));
  kernels::pack_share(plan_, addresses, slot, digest ? table.totals() : std::span<kernels::TileTotal>(), pool);
}

}  // namespace bascule::inline v0
