// The paged cache's memory, and attention over it. For one thread; on a GPU, for the thread's current stream.
//
// Shapes: L layers, S = blocks * kBlockTokens places, G key/value heads, D head width; n rows of a group, c tokens per
// row, T places of the longest context, in whole blocks.
#pragma once

#include <ATen/ATen.h>

#include <span>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/step.h>
#include <bascule/trainer_ref/model/config.h>
#include <bascule/trainer_ref/model/decoder.h>

namespace bascule::ref {

// A step's rows as one flat batch of N tokens, group after group.
struct FlatBatch {
  at::Tensor token_ids, positions;  // int64 [N], on the cache's device
  std::vector<std::int64_t> last;   // the place in the batch of each row's last token, in the order of the step
};

// Bytes of one block over all layers, keys and values.
std::int64_t block_bytes(const ModelConfig& config, at::ScalarType dtype);

class CacheAttention final : public Attention {
 public:
  CacheAttention(const ModelConfig& config, std::size_t blocks, at::ScalarType dtype, at::Device device);

  void copy_blocks(std::span<const std::pair<BlockId, BlockId>> copies);
  void clear();  // writes zeros: padding reads any block, and a NaN there would stay a NaN at weight 0

  // Prepares the next calls of attend(): keys and values of `rows` go to their sequences' blocks.
  FlatBatch lay_out(std::span<const Row> rows);
  at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value) override;

  at::Device device() const { return keys_.device(); }

 private:
  struct Group {
    std::int64_t rows = 0;    // n
    std::int64_t width = 0;   // c
    std::int64_t begin = 0;   // its first token in the flat batch
    std::int64_t tokens = 0;  // in the flat batch; n * c without padding
    at::Tensor spread,
        gather;              // int64 [n * c] flat tokens to padded ones, [tokens] and back; only if padded
    at::Tensor block_table;  // int64 [n * T / kBlockTokens]
    at::Tensor mask;         // [n, 1, c, T], zero where a token may look and minus infinity elsewhere
  };
  Group group_of(std::span<const Row> rows, std::span<const std::size_t> members, std::int64_t begin) const;
  at::Tensor mask_of(const at::Tensor& seen, std::int64_t rows, std::int64_t width, std::int64_t blocks) const;
  at::Tensor attend_group(const Group& group, const at::Tensor& query, const at::Tensor& keys,
                          const at::Tensor& values) const;
  at::Tensor on_device(const std::vector<std::int64_t>& values) const;

  at::Tensor keys_, values_;  // [L, S, G, D]
  at::Tensor places_;         // int64 [N]: where each token of the step goes in S
  std::vector<Group> groups_;
};

}  // namespace bascule::ref
