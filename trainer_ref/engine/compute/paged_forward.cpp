#include <bascule/trainer_ref/engine/compute/paged_forward.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include <bascule/trainer_ref/engine/compute/cuda_check.h>
#include <bascule/trainer_ref/ops/low_rank.h>
#include <bascule/trainer_ref/ops/rms_norm.h>
#include <bascule/trainer_ref/ops/rotate.h>
#include <bascule/trainer_ref/ops/silu_mul.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

DType type_of(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16; }

}  // namespace

bool fits_paged_forward(const ModelConfig& config) {
  const auto in_eights = [](std::int64_t size) { return size % 8 == 0; };
  return in_eights(config.head_dim) && config.head_dim <= ops::kMostWidth && in_eights(config.hidden_size) &&
         in_eights(config.intermediate_size) &&
         config.num_attention_heads / config.num_key_value_heads <= ops::kMostShared;
}

PagedForward::PagedForward(const ModelConfig& config, const Place& place)
    : config_(config),
      stream_(place.handle()),
      beside_(c10::impl::VirtualGuardImpl(place.device.type()).getStreamFromGlobalPool(place.device)) {
  check(BASCULE_CUDA_RESULT(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, place.number())));
}

at::Tensor PagedForward::operator()(const DecoderWeights& weights, const StepNumbers& numbers,
                                    const GpuCache& cache) const {
  const std::int64_t tokens = numbers.shape().tokens, channels = config_.hidden_size;
  const auto heads = static_cast<int>(config_.num_attention_heads);
  const std::int64_t shared = config_.num_key_value_heads, width = config_.head_dim;
  const auto epsilon = static_cast<float>(config_.rms_norm_eps);
  at::Tensor residual = weights.embedding.index_select(0, numbers.tensor(StepNumbers::kTokenIds, tokens));  // [N, C]
  const at::TensorOptions like = residual.options();
  const DType dtype = cache.layer(0).dtype;
  const at::Tensor turns = at::empty({tokens, config_.head_dim}, like.dtype(at::kFloat));  // [N, D/2, 2]
  check(ops::make_turns(turns.mutable_data_ptr<float>(), numbers.at<std::int64_t>(StepNumbers::kPositions),
                        weights.inverse_frequencies.const_data_ptr<float>(), tokens, static_cast<int>(config_.head_dim),
                        dtype, stream_));
  at::Tensor normed = at::empty_like(residual);
  const auto data_or_none = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; };
  const auto norm = [&](const at::Tensor& added, const Update& update, const at::Tensor& weight) {
    check(ops::rms_norm(normed.data_ptr(), residual.data_ptr(), data_or_none(added), end_update(update),
                        weight.data_ptr(), dtype, tokens, channels, epsilon, stream_));
  };

  at::Tensor added;  // to the residual, with the next norm
  Update of_added;
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    const DecoderLayer& layer = weights.layers[static_cast<std::size_t>(i)];
    norm(added, of_added, layer.input_norm);
    const Update of_joined = begin_update(normed, numbers, i, kQuery, {heads * width, shared * width, shared * width});
    const at::Tensor joined = layer.query_key_value(normed);  // [N, (H + 2 G) D]
    const at::Tensor query = at::empty({tokens, heads * config_.head_dim}, like);
    check(ops::rotate(query.data_ptr(), cache.layer(i),
                      {.query_key_value = joined.data_ptr(),
                       .update = end_update(of_joined),
                       .turns = turns.const_data_ptr<float>(),
                       .places = numbers.at<std::int64_t>(StepNumbers::kPlaces),
                       .query_norm = data_or_none(layer.query_norm),
                       .key_norm = data_or_none(layer.key_norm),
                       .tokens = tokens,
                       .heads = heads,
                       .epsilon = epsilon},
                      stream_));
    const at::Tensor attended = attend(query, cache.layer(i), numbers);
    const Update of_output = begin_update(attended, numbers, i, kOutput, {channels});
    const at::Tensor output = layer.output(attended);
    norm(output, of_output, layer.post_attention_norm);
    const Update of_gate_up =
        begin_update(normed, numbers, i, kGate, {config_.intermediate_size, config_.intermediate_size});
    const at::Tensor gate_up = layer.gate_up(normed);  // [N, 2 I]
    const at::Tensor inner = at::empty({tokens, config_.intermediate_size}, like);
    check(ops::silu_mul(inner.data_ptr(), gate_up.data_ptr(), end_update(of_gate_up), dtype, tokens,
                        config_.intermediate_size, stream_));
    of_added = begin_update(inner, numbers, i, kDown, {channels});
    added = layer.down(inner);
  }
  norm(added, of_added, weights.norm);
  return normed;
}

PagedForward::Update PagedForward::begin_update(const at::Tensor& x, const StepNumbers& numbers, std::int64_t layer,
                                                LayerModule first, std::initializer_list<std::int64_t> out) const {
  const StepShape& shape = numbers.shape();
  if (shape.adapter_tiles == 0) return {};
  ops::LowRankProduct product{.tiles = numbers.at<ops::AdapterTile>(StepNumbers::kAdapterTiles),
                              .tile_count = shape.adapter_tiles,
                              .rank = static_cast<int>(shape.rank),
                              .first = static_cast<int>(layer) * kLayerModules + first,
                              .parts = static_cast<int>(out.size()),
                              .in = x.size(1)};
  std::ranges::transform(out, product.out.begin(), [](std::int64_t rows) { return static_cast<int>(rows); });
  const DType dtype = type_of(x);
  Update update{.low = at::empty({ops::low_floats(product, dtype)}, x.options().dtype(at::kFloat)),
                .sum = at::empty({x.size(0), std::accumulate(out.begin(), out.end(), std::int64_t{0})}, x.options())};
  const auto beside = static_cast<Stream>(beside_.native_handle());
  begun_.record(stream_);
  begun_.hold(beside);
  check(ops::shrink(update.low.mutable_data_ptr<float>(), x.const_data_ptr(), dtype, product, beside));
  check(ops::expand(update.sum.mutable_data_ptr(), update.low.const_data_ptr<float>(), dtype, product, beside));
  ended_.record(beside);
  return update;
}

const void* PagedForward::end_update(const Update& update) const {
  if (!update.sum.defined()) return nullptr;
  ended_.hold(stream_);
  return update.sum.const_data_ptr();
}

// query [N, H D] → [N, H D]. Computes each single token by itself, and pieces of prompts in tiles if there is a kernel
// for that.
at::Tensor PagedForward::attend(const at::Tensor& query, const ops::PagedCache& cache,
                                const StepNumbers& numbers) const {
  const StepShape& shape = numbers.shape();
  const at::Tensor out = at::empty_like(query);
  ops::AttentionInput input{.query = query.data_ptr(),
                            .pages = numbers.at<std::int32_t>(StepNumbers::kBlocks),
                            .row_of = numbers.at<std::int32_t>(StepNumbers::kRowOf),
                            .context_of = numbers.at<std::int32_t>(StepNumbers::kContexts),
                            .tokens = ops::has_prompt_attention(cache) ? shape.singles : shape.tokens,
                            .pages_per_row = static_cast<int>(shape.blocks),
                            .heads = static_cast<int>(config_.num_attention_heads),
                            .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim))};
  if (input.tokens > 0) {
    const int splits = ops::splits_for(input.tokens, cache.heads, shape.blocks * ops::kPageTokens, processors_);
    const std::int64_t floats = ops::partial_floats(input.tokens, input.heads, cache.width, splits);
    const at::Tensor partial = at::empty({floats}, query.options().dtype(at::kFloat));
    check(ops::token_attention(out.data_ptr(), cache, input, splits, partial.mutable_data_ptr<float>(), stream_));
  }
  if (input.tokens < shape.tokens)
    check(ops::prompt_attention(out.data_ptr(), cache, input, numbers.at<ops::PromptTile>(StepNumbers::kTiles),
                                shape.tiles, stream_));
  return out;
}

}  // namespace bascule::ref
