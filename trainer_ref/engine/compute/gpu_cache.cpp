#include <bascule/trainer_ref/engine/compute/gpu_cache.h>

#include <vector>

namespace bascule::ref {

static_assert(ops::kPageTokens == kBlockTokens);

GpuCache::GpuCache(const ModelConfig& config, std::size_t blocks, at::ScalarType dtype, at::Device device) {
  keys_ = at::zeros({config.num_hidden_layers, static_cast<std::int64_t>(blocks) + 1, config.num_key_value_heads,
                     ops::kPageTokens, config.head_dim},
                    at::TensorOptions(device).dtype(dtype));
  values_ = at::zeros_like(keys_);
  tokens_ = at::zeros({keys_.size(1), ops::kPageTokens}, at::TensorOptions(device).dtype(at::kInt));
}

ops::PagedCache GpuCache::layer(std::int64_t layer) const {
  return {.keys = keys_.select(0, layer).data_ptr(),
          .values = values_.select(0, layer).data_ptr(),
          .dtype = keys_.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16,
          .heads = static_cast<int>(keys_.size(2)),
          .width = static_cast<int>(keys_.size(4))};
}

void GpuCache::copy_blocks(std::span<const std::pair<BlockId, BlockId>> copies) {
  if (copies.empty()) return;
  std::vector<std::int64_t> both;
  for (const auto& [from, to] : copies) both.push_back(from);
  for (const auto& [from, to] : copies) both.push_back(to);
  const auto count = static_cast<std::int64_t>(copies.size());
  const at::Tensor ids = at::tensor(at::IntArrayRef(both), at::kLong).pin_memory().to(keys_.device(), true);
  for (at::Tensor& blocks : {std::ref(keys_), std::ref(values_)})
    blocks.index_copy_(1, ids.narrow(0, count, count), blocks.index_select(1, ids.narrow(0, 0, count)));
  tokens_.index_copy_(0, ids.narrow(0, count, count), tokens_.index_select(0, ids.narrow(0, 0, count)));
}

void GpuCache::clear() {
  keys_.zero_();
  values_.zero_();
  tokens_.zero_();
}

}  // namespace bascule::ref
