// ShardPacking: how one rank writes the boxes that it owns into a slot of the whole model. It takes memory per box and
// per tile, and none per row of a box that is cut by columns.
//
//   slot    | w: rows 0-4 of rank 0 | rows 5-8 of rank 1 | bias: rank 0 | …
//   tiles   |    0: all of rank 0   | 1: some of both    | 2: …
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/kernels/share.h>
#include <bascule/sender/ranks/shared_table.h>
#include <bascule/sender/shards.h>
#include <bascule/transport/layout.h>
#include <bascule/transport/scheme.h>

namespace bascule::inline v0 {

// A ShardSource's tensors and boxes as they were registered, and their addresses now. Boxes are numbered over all
// tensors.
class HeldShards {
 public:
  // INVALID_ARGUMENT, naming the tensor: a shard has another number of dimensions than its tensor, a negative size, or
  // no data. UNIMPLEMENTED: the slots of `scheme` are not where the shards are.
  static absl::StatusOr<HeldShards> make(std::unique_ptr<ShardSource> source, const Scheme& scheme);

  std::span<const ShardedTensor> tensors() const { return tensors_; }  // as of the last refresh()
  std::vector<TensorSpec> specs() const;
  int device() const { return source_->device(); }
  Stream stream() const { return source_->stream(); }
  // Each box as the index of its tensor, its offset and its shape, one after the other.
  std::vector<std::int64_t> numbers() const;

  // Asks the source again. INVALID_ARGUMENT names the tensor whose shards are no longer the registered ones. Returns
  // whether strides have changed since the last call that was OK.
  absl::StatusOr<bool> refresh();

 private:
  std::unique_ptr<ShardSource> source_;
  std::span<const ShardedTensor> tensors_;
  std::vector<ShardedTensor> registered_;
  bool other_strides_ = false;  // than at the last refresh() that was OK
};

class ShardPacking {
 public:
  // Plans to write the boxes with these numbers (HeldShards) into slots of `layout`. INVALID_ARGUMENT names a tensor
  // that cannot be cast, or whose shard has too many separate strides.
  static absl::StatusOr<ShardPacking> make(const Layout& layout, const HeldShards& held,
                                           std::span<const std::uint32_t> owned);

  void mark(SharedTable& table) const;  // the tiles that this rank writes alone
  // Writes the boxes, from where `held` has them now. With `digest`, stores the marked tiles' totals. Blocks.
  void write(const HeldShards& held, std::span<std::byte> slot, SharedTable& table, bool digest,
             kernels::ThreadPool& pool) const;

 private:
  struct Box {
    std::uint32_t tensor = 0, shard = 0;  // indices into the tensors, and into that tensor's shards
  };
  ShardPacking(std::vector<Box> boxes, kernels::SharePlan plan) : boxes_(std::move(boxes)), plan_(std::move(plan)) {}

  std::vector<Box> boxes_;  // by kernels::Segment::tensor
  kernels::SharePlan plan_;
};

}  // namespace bascule::inline v0
