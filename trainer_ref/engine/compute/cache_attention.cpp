#include <bascule/trainer_ref/engine/compute/cache_attention.h>

#include <algorithm>
#include <limits>

namespace bascule::ref {
namespace {

constexpr auto kTokens = static_cast<std::int64_t>(kBlockTokens);

}  // namespace

std::int64_t block_bytes(const ModelConfig& config, at::ScalarType dtype) {
  return 2 * config.num_hidden_layers * kTokens * config.num_key_value_heads * config.head_dim *
         static_cast<std::int64_t>(c10::elementSize(dtype));
}

CacheAttention::CacheAttention(const ModelConfig& config, std::size_t blocks, at::ScalarType dtype, at::Device device) {
  const std::vector<std::int64_t> shape{config.num_hidden_layers, static_cast<std::int64_t>(blocks) * kTokens,
                                        config.num_key_value_heads, config.head_dim};
  keys_ = at::zeros(shape, at::TensorOptions(device).dtype(dtype));
  values_ = at::zeros_like(keys_);
}

// Copies through pinned memory, which the stream reads when it gets there: the host does not wait.
at::Tensor CacheAttention::on_device(const std::vector<std::int64_t>& values) const {
  const at::Tensor tensor = at::tensor(at::IntArrayRef(values), at::kLong);
  return device().is_cpu() ? tensor : tensor.pin_memory().to(device(), /*non_blocking=*/true);
}

void CacheAttention::clear() {
  keys_.zero_();
  values_.zero_();
}

void CacheAttention::copy_blocks(std::span<const std::pair<BlockId, BlockId>> copies) {
  if (copies.empty()) return;
  std::vector<std::int64_t> from, to;
  for (const auto& [source, target] : copies) {
    from.push_back(source);
    to.push_back(target);
  }
  for (const at::Tensor& places : {keys_, values_}) {
    const at::Tensor blocks = places.view({places.size(0), -1, kTokens * places.size(2) * places.size(3)});
    blocks.index_copy_(1, on_device(to), blocks.index_select(1, on_device(from)));
  }
}

CacheAttention::Group CacheAttention::group_of(std::span<const Row> rows, std::span<const std::size_t> members,
                                               std::int64_t begin) const {
  std::size_t width = 0, blocks = 0;
  for (const std::size_t i : members) {
    width = std::max(width, rows[i].count);
    blocks = std::max(blocks, (rows[i].end() + kBlockTokens - 1) / kBlockTokens);
  }
  Group group{.rows = static_cast<std::int64_t>(members.size()),
              .width = static_cast<std::int64_t>(width),
              .begin = begin,
              .tokens = 0,
              .spread = {},
              .gather = {},
              .block_table = {},
              .mask = {}};
  std::vector<std::int64_t> spread, gather, table,
      seen;  // seen: the last position that a padded token may look at
  for (const std::size_t i : members) {
    const Row& row = rows[i];
    for (std::size_t j = 0; j < width; ++j) {
      const std::size_t token = std::min(j, row.count - 1);  // padding repeats the last one
      if (j < row.count) gather.push_back(static_cast<std::int64_t>(spread.size()));
      spread.push_back(group.tokens + static_cast<std::int64_t>(token));
      seen.push_back(static_cast<std::int64_t>(row.begin + token));
    }
    group.tokens += static_cast<std::int64_t>(row.count);
    for (std::size_t b = 0; b < blocks; ++b)
      table.push_back(b < row.sequence->blocks.size() ? row.sequence->blocks[b] : 0);
  }
  if (group.tokens != group.rows * group.width) {
    group.spread = on_device(spread);
    group.gather = on_device(gather);
  }
  group.block_table = on_device(table);
  group.mask = mask_of(on_device(seen), group.rows, group.width, static_cast<std::int64_t>(blocks));
  return group;
}

// seen [n * c] → [n, 1, c, T]
at::Tensor CacheAttention::mask_of(const at::Tensor& seen, std::int64_t rows, std::int64_t width,
                                   std::int64_t blocks) const {
  const at::Tensor hidden = at::arange(blocks * kTokens, seen.options()) > seen.view({rows, 1, width, 1});
  return at::zeros(hidden.sizes(), keys_.options()).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

FlatBatch CacheAttention::lay_out(std::span<const Row> rows) {
  FlatBatch batch;
  batch.last.resize(rows.size());
  std::vector<std::int64_t> ids, positions, places;
  groups_.clear();
  for (const std::vector<std::size_t>& members : padded_groups(rows)) {
    groups_.push_back(group_of(rows, members, static_cast<std::int64_t>(ids.size())));
    for (const std::size_t i : members) {
      const Row& row = rows[i];
      for (std::size_t position = row.begin; position < row.end(); ++position) {
        ids.push_back(row.sequence->tokens[position]);
        positions.push_back(static_cast<std::int64_t>(position));
        places.push_back(row.sequence->blocks[position / kBlockTokens] * kTokens +
                         static_cast<std::int64_t>(position % kBlockTokens));
      }
      batch.last[i] = static_cast<std::int64_t>(ids.size()) - 1;
    }
  }
  batch.token_ids = on_device(ids);
  batch.positions = on_device(positions);
  places_ = on_device(places);
  return batch;
}

at::Tensor CacheAttention::attend(std::int64_t layer, const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value) {
  at::Tensor keys = keys_.select(0, layer), values = values_.select(0, layer);  // [S, G, D]
  keys.index_copy_(0, places_, key);
  values.index_copy_(0, places_, value);
  if (groups_.size() == 1) return attend_group(groups_.front(), query, keys, values);
  std::vector<at::Tensor> parts;
  parts.reserve(groups_.size());
  for (const Group& group : groups_)
    parts.push_back(attend_group(group, query.narrow(0, group.begin, group.tokens), keys, values));
  return at::cat(parts);
}

at::Tensor CacheAttention::attend_group(const Group& group, const at::Tensor& query, const at::Tensor& keys,
                                        const at::Tensor& values) const {
  const auto heads_first = [&](const at::Tensor& x,
                               std::int64_t tokens) {  // [n * tokens, heads, D] → [n, heads, tokens, D]
    return x.view({group.rows, tokens, x.size(1), x.size(2)}).transpose(1, 2);
  };
  const std::int64_t context = group.mask.size(-1);  // T
  const auto context_of = [&](const at::Tensor& places) {
    const at::Tensor blocks = places.view({-1, kTokens * places.size(1) * places.size(2)});
    const at::Tensor picked = blocks.index_select(0, group.block_table);
    return heads_first(picked.view({group.rows * context, places.size(1), places.size(2)}), context);
  };
  const at::Tensor padded = group.spread.defined() ? query.index_select(0, group.spread) : query;
  const bool grouped = query.size(1) != keys.size(1);
  const at::Tensor mixed =
      at::scaled_dot_product_attention(heads_first(padded, group.width), context_of(keys), context_of(values),
                                       group.mask, /*dropout_p=*/0.0, /*is_causal=*/false, {}, grouped);
  const at::Tensor flat = mixed.transpose(1, 2).reshape(padded.sizes());
  return group.gather.defined() ? flat.index_select(0, group.gather) : flat;
}

}  // namespace bascule::ref
