// Causal attention within each row of packed rows, as a trainer needs it: all tokens at once, differentiable.
//
// On a GPU in bfloat16 it is one kernel over rows of any length (FlashAttention-2, arXiv 2307.08691), which shares
// keys and values among the heads of a group. Elsewhere rows are padded to the longest one, within attention alone.
//
// Threads: as Decoder. Lifetime: it holds what it needs of the rows.
#pragma once

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

  PackedRows rows_;
  // int64 [R * longest]: the token at each padded place; int64 [N]: each token's padded place. Undefined where all rows
  // are of one length.
  at::Tensor spread_, gather_;
};

}  // namespace bascule::ref
