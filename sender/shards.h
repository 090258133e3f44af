// Shards: what a rank of a sharded trainer sends. Every rank describes all tensors, and gives the boxes of them that it
// holds; together the ranks hold each element at least once. No rank gathers a tensor.
//
//   w [9, 8]   rank 0: offset {0, 0}, shape {5, 8}     rank 1: offset {5, 0}, shape {4, 8}
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/transport/tensor.h>

namespace bascule::inline v0 {

// A box of a tensor: where it lies in the whole tensor, and where its elements lie in this process.
struct Shard {
  std::vector<std::int64_t> offset, shape;  // one number per dimension of the tensor
  std::vector<std::int64_t> strides{};      // elements; empty: contiguous in C order
  const void* data = nullptr;
};

struct ShardedTensor {
  TensorSpec spec;              // the whole tensor; equal on all ranks, in name, type, shape and order
  std::vector<Shard> shards{};  // none, if other ranks hold it. A shard may have no elements
};

// What Sender::register_shards() takes. Every send calls tensors() again, so a shard's memory may move between sends.
class ShardSource {
 public:
  virtual ~ShardSource() = default;
  // Returns the same tensors and boxes in the same order at every call; only `data` and `strides` may differ. The span
  // is valid until the next call.
  virtual absl::StatusOr<std::span<const ShardedTensor>> tensors() = 0;
  // The device on which all `data` lies, or kHost; the same at every call.
  virtual int device() const { return kHost; }
  // For shards on a device: the stream that writes them, as TensorSource::stream().
  virtual Stream stream() const { return nullptr; }
};

// For shards whose memory does not move.
class FixedShards final : public ShardSource {
 public:
  explicit FixedShards(std::vector<ShardedTensor> tensors) : tensors_(std::move(tensors)) {}
  absl::StatusOr<std::span<const ShardedTensor>> tensors() override { return tensors_; }

 private:
  std::vector<ShardedTensor> tensors_;
};

}  // namespace bascule::inline v0
