#include <bascule/trainer_ref/model/causal_attention.h>

#include <algorithm>

namespace bascule::ref {
namespace {

// What the kernel takes: heads of a width that is a multiple of 8, up to 256.
bool has_fused_kernel(const at::Tensor& query) {
  return query.is_cuda() && query.scalar_type() == at::kBFloat16 && query.size(2) % 8 == 0 && query.size(2) <= 256;
}

}  // namespace

CausalAttention::CausalAttention(const PackedRows& rows) : rows_(rows) {
  if (rows_.tokens() == rows_.rows() * rows_.longest) return;
  std::vector<std::int64_t> spread, gather;
  for (std::size_t row = 0; row + 1 < rows_.starts.size(); ++row) {
    const std::int64_t begin = rows_.starts[row], end = rows_.starts[row + 1];
    for (std::int64_t i = 0; i < rows_.longest; ++i) {
      if (begin + i < end) gather.push_back(static_cast<std::int64_t>(spread.size()));
      spread.push_back(std::min(begin + i, end - 1));  // padding repeats the last token; nothing looks at it
    }
  }
  spread_ = at::tensor(spread, at::kLong).to(rows_.device_starts.device());
  gather_ = at::tensor(gather, at::kLong).to(rows_.device_starts.device());
}

at::Tensor CausalAttention::attend(std::int64_t /*layer*/, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value) {
  return has_fused_kernel(query) ? attend_fused(query, key, value) : attend_padded(query, key, value);
}

at::Tensor CausalAttention::attend_fused(const at::Tensor& query, const at::Tensor& key,
                                         const at::Tensor& value) const {
  return std::get<0>(at::_flash_attention_forward(query, key, value, rows_.device_starts, rows_.device_starts,
                                                  rows_.longest, rows_.longest, /*dropout_p=*/0.0, /*is_causal=*/true,
                                                  /*return_debug_mask=*/false));
}

at::Tensor CausalAttention::attend_padded(const at::Tensor& query, const at::Tensor& key,
                                          const at::Tensor& value) const {
  const auto by_row = [&](const at::Tensor& x) {  // [N, heads, D] → [R, heads, longest, D]
    const at::Tensor padded = spread_.defined() ? x.index_select(0, spread_) : x;
    return padded.view({rows_.rows(), rows_.longest, x.size(1), x.size(2)}).transpose(1, 2);
  };
  const bool grouped = query.size(1) != key.size(1);
  const auto of_heads = [&](const at::Tensor& x) {  // a GPU's kernel for float knows no groups
    return grouped && x.is_cuda() ? by_row(x.repeat_interleave(query.size(1) / x.size(1), 1)) : by_row(x);
  };
  const at::Tensor mixed =
      at::scaled_dot_product_attention(by_row(query), of_heads(key), of_heads(value), {}, /*dropout_p=*/0.0,
                                       /*is_causal=*/true, {}, /*enable_gqa=*/grouped && !query.is_cuda());
  const at::Tensor flat = mixed.transpose(1, 2).reshape({-1, query.size(1), query.size(2)});
  return gather_.defined() ? flat.index_select(0, gather_) : flat;
}

}  // namespace bascule::ref
