// The paged cache's memory on a GPU, as kernels read it (ops/paged_cache.h): keys, values, and which token each place
// is of. The place's stream must be current.
//
// Shapes: L layers, G key/value heads, P tokens of a block, D head width.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include <bascule/trainer_ref/engine/schedule/block_pool.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/trainer_ref/ops/paged_cache.h>

namespace bascule::ref {

class GpuCache {
 public:
  GpuCache(const ModelConfig& config, std::size_t blocks, at::ScalarType dtype, at::Device device);

  ops::PagedCache layer(std::int64_t layer) const;
  std::int32_t* tokens() const { return tokens_.data_ptr<std::int32_t>(); }
  void copy_blocks(std::span<const std::pair<BlockId, BlockId>> copies);
  void clear();  // zeros
  // The block after the pool's last one. Rows that are only padding write there.
  std::int64_t spare_block() const { return keys_.size(1) - 1; }

 private:
  at::Tensor keys_, values_;  // [L, blocks + 1, G, P, D]
  at::Tensor tokens_;         // int32 [blocks + 1, P]
};

}  // namespace bascule::ref
