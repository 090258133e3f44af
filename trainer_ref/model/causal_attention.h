// Causal attention within each row of packed rows, as a trainer needs it: all tokens at once, differentiable.
//
// On a GPU in bfloat16 it is one kernel over rows of any length (FlashAttention-2, arXiv 2307.08691), which shares keys
// and values among the heads of a group. Elsewhere rows are padded, within attention alone: rows of similar length go
// together, so that padding adds at most a quarter of their tokens.
//
// Threads: the same rules as for Decoder. Lifetime: it holds what it needs of the rows.
#pragma once

#include <vector>

#include <bascule/trainer_ref/model/decoder.h>
#include <bascule/trainer_ref/model/packed_rows.h>

namespace bascule::ref {

class CausalAttention final : public Attention {
 public:
  explicit CausalAttention(const PackedRows& rows);
  at::Tensor attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                    const at::Tensor& value) override;

 private:
  at::Tensor attend_fused(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
  at::Tensor attend_padded(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;

  // Rows that are padded to one length. If all rows have one length, they are a single group without tensors.
  struct Alike {
    std::int64_t rows = 0, longest = 0;
    at::Tensor spread,
        gather;  // int64 [rows * longest]: the token at each padded place; int64: the padded place of each token
  };

  PackedRows rows_;
  std::vector<Alike> groups_;
  at::Tensor order_;  // int64 [N]: each token's place among all groups' tokens; undefined if no token moves
};

}  // namespace bascule::ref
