#include <bascule/trainer_ref/model/causal_attention.h>

#include <algorithm>
#include <numeric>

namespace bascule::ref {
namespace {

// What the kernel supports: heads of a width that is a multiple of 8, up to 256.
bool has_fused_kernel(const at::Tensor& query) {
  return query.is_cuda() && query.scalar_type() == at::kBFloat16 && query.size(2) % 8 == 0 && query.size(2) <= 256;
}

// The rows, the longest first, in groups whose padding adds at most a quarter of their tokens.
std::vector<std::vector<std::size_t>> rows_alike(const PackedRows& rows) {
  const auto length = [&](std::size_t row) { return rows.starts[row + 1] - rows.starts[row]; };
  std::vector<std::size_t> order(static_cast<std::size_t>(rows.rows()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  std::vector<std::vector<std::size_t>> groups;
  std::int64_t tokens = 0;  // of the last group
  for (const std::size_t row : order) {
    const bool fits =
        !groups.empty() && 4 * length(groups.back().front()) * static_cast<std::int64_t>(groups.back().size() + 1) <=
                               5 * (tokens + length(row));
    if (!fits) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(row);
    tokens += length(row);
  }
  return groups;
}

}  // namespace

CausalAttention::CausalAttention(const PackedRows& rows) : rows_(rows) {
  if (rows_.tokens() == rows_.rows() * rows_.longest) {
    groups_ = {{.rows = rows_.rows(), .longest = rows_.longest, .spread = {}, .gather = {}}};
    return;
  }
  const auto on_device = [&](const std::vector<std::int64_t>& places) {
    return at::tensor(places, at::kLong).to(rows_.device_starts.device());
  };
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows_.tokens()));
  std::int64_t place = 0;
  for (const std::vector<std::size_t>& alike : rows_alike(rows_)) {
    const std::int64_t longest = rows_.starts[alike.front() + 1] - rows_.starts[alike.front()];
    std::vector<std::int64_t> spread, gather;
    for (const std::size_t row : alike) {
      const std::int64_t begin = rows_.starts[row], end = rows_.starts[row + 1];
      for (std::int64_t i = 0; i < longest; ++i) {
        if (begin + i < end) {
          order[static_cast<std::size_t>(begin + i)] = place++;
          gather.push_back(static_cast<std::int64_t>(spread.size()));
        }
        spread.push_back(std::min(begin + i, end - 1));  // padding repeats the last token; nothing looks at it
      }
    }
    groups_.push_back({.rows = static_cast<std::int64_t>(alike.size()),
                       .longest = longest,
                       .spread = on_device(spread),
                       .gather = on_device(gather)});
  }
  order_ = on_device(order);
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
  const bool shared = query.size(1) != key.size(1);
  // A GPU's kernel for float does not support heads that share keys.
  const auto of_heads = [&](const at::Tensor& x) {
    return shared && x.is_cuda() ? x.repeat_interleave(query.size(1) / x.size(1), 1) : x;
  };
  const at::Tensor keys = of_heads(key), values = of_heads(value);
  std::vector<at::Tensor> mixed;
  for (const Alike& group : groups_) {
    const auto by_row = [&](const at::Tensor& x) {  // [N, heads, D] → [rows, heads, longest, D]
      const at::Tensor padded = group.spread.defined() ? x.index_select(0, group.spread) : x;
      return padded.view({group.rows, group.longest, x.size(1), x.size(2)}).transpose(1, 2);
    };
    const at::Tensor of_rows =
        at::scaled_dot_product_attention(by_row(query), by_row(keys), by_row(values), {}, /*dropout_p=*/0.0,
                                         /*is_causal=*/true, {}, /*enable_gqa=*/shared && !query.is_cuda());
    const at::Tensor flat = of_rows.transpose(1, 2).reshape({-1, query.size(1), query.size(2)});
    mixed.push_back(group.gather.defined() ? flat.index_select(0, group.gather) : flat);
  }
  return order_.defined() ? at::cat(mixed).index_select(0, order_) : mixed.front();
}

}  // namespace bascule::ref
