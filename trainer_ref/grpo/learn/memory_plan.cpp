#include <bascule/trainer_ref/grpo/learn/memory_plan.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/model/fused_scores.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::int64_t kFloatBytes = 4;
constexpr double kGiB = 1 << 30;
constexpr std::int64_t kBatchBytes = 5 * 8 + 4;  // per token in Batch: five int64 and a float

// Bytes of tensors, by the shapes of the configuration: C channels, Q = H · D, K = G · D, I, V; e bytes per element of
// an activation.
class Sizes {
 public:
  explicit Sizes(const MemoryNeed& need)
      : config_(need.config),
        compute_(need.compute),
        device_(need.device),
        e_(static_cast<std::int64_t>(elementSize(need.compute.dtype))) {
    for (const TensorSpec& spec : weight_specs(config_, DType::kF32)) {
      const std::int64_t elements =
          std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies<>());
      weights_ += elements;
      if (spec.name.starts_with("model.layers.0.")) layer_weights_ += elements;
    }
    for (const AdaptedModule& module : need.adapted) adapter_ += module.rank * (module.in + module.out);
  }

  std::int64_t weights() const { return weights_; }
  std::int64_t element() const { return e_; }
  std::int64_t hidden() const { return config_.hidden_size * e_; }  // per token

  std::int64_t adapter() const { return adapter_; }                            // elements
  std::int64_t trained() const { return adapter_ > 0 ? adapter_ : weights_; }  // elements

  // What one layer keeps per token for its backward pass.
  std::int64_t kept() const {
    const std::int64_t c = config_.hidden_size, q = query(), k = key(), i = config_.intermediate_size;
    const std::int64_t shared = keys_of_attention();
    std::int64_t elements = 4 * c                   // both norms' inputs, which are the residual stream, and outputs
                            + 2 * q + 2 * shared    // attention: query, key, value, result
                            + 4 * i;                // gate, silu(gate), up, their product
    if (config_.query_key_norm) elements += q + k;  // the inputs of those norms
    if (!is_bf16()) elements += 2 * c + (config_.query_key_norm ? q + k : 0);  // norms in steps: scaled, unweighted
    const std::int64_t head_sums = config_.num_attention_heads * kFloatBytes;  // log-sum-exp of attention
    return elements * e_ + head_sums;
  }
  // The same of a layer with frozen weights, besides its adapters: an input of a frozen module is not kept for it.
  std::int64_t kept_if_frozen() const {
    const std::int64_t c = config_.hidden_size, q = query(), k = key(), i = config_.intermediate_size;
    std::int64_t elements = 2 * c                              // both norms' inputs
                            + 2 * q + 2 * keys_of_attention()  // attention: query, key, value, result
                            + 3 * i;                           // gate, silu(gate), up
    if (config_.query_key_norm) elements += q + k;             // the inputs of those norms
    return elements * e_ + config_.num_attention_heads * kFloatBytes;
  }
  // What the adapters of all layers keep per token: each module's low-rank product, and its input, which modules with
  // the same input share. With dropout each module has its own input, and a mask.
  std::int64_t kept_by(const MemoryNeed& need) const {
    std::int64_t bytes = 0;
    std::string before;
    for (const AdaptedModule& module : need.adapted) {  // in the order of their names: block by block
      const bool is_first =
          module.name.ends_with("o_proj") || module.name.ends_with("down_proj") || block_of(module.name) != before;
      if (!module.name.ends_with("o_proj") && !module.name.ends_with("down_proj")) before = block_of(module.name);
      const bool is_kept_anyway = module.name.ends_with("o_proj");  // attention keeps its result
      bytes += module.rank * e_;
      if (need.dropout > 0)
        bytes += module.in * (e_ + (device_ == at::kCPU ? e_ : 1));
      else if (is_first && !is_kept_anyway)
        bytes += module.in * e_;
    }
    return bytes;
  }
  // A layer's cast weights, which its backward pass reads. Frozen ones have the type of the computation already.
  std::int64_t cast() const {
    const std::int64_t elements = adapter_ > 0 ? adapter_ / config_.num_hidden_layers : layer_weights_;
    return is_bf16() ? elements * e_ : 0;
  }
  // Per token, besides what its layer keeps: gradients between the operations of the layer's backward pass. The MLP
  // comes first; attention can reuse the memory that the MLP kept, and needs float sums.
  std::int64_t between() const {
    const std::int64_t mlp = (adapter_ > 0 ? 3 : 2) * config_.intermediate_size * e_;
    const std::int64_t attention = query() * kFloatBytes + (4 * query() + 2 * key()) * e_;
    return 2 * hidden() + std::max(mlp, attention - 4 * config_.intermediate_size * e_);
  }

  std::int64_t head() const { return config_.vocab_size * config_.hidden_size; }  // elements
  // While the gradients of a chunk's logits are multiplied: these gradients (in float and also in bfloat16, if no
  // kernel makes them in place), the cast head, and its gradient from the chunk. Without the kernel the forward pass
  // may need more.
  std::int64_t log_probs(std::int64_t places) const {
    const std::int64_t chunk =
        std::min(places, compute_.logit_chunk > 0 ? compute_.logit_chunk
                                                  : default_logit_chunk(config_.vocab_size, compute_.dtype, device_));
    const std::int64_t forward = chunk * logit_bytes_per_place(config_.vocab_size, compute_.dtype, device_);
    const std::int64_t gradient = has_fused_scores(device_) ? e_ : kFloatBytes + (is_bf16() ? e_ : 0);
    const std::int64_t differentiated = chunk * config_.vocab_size * gradient;
    if (adapter_ > 0) return std::max(forward, differentiated);
    return (is_bf16() ? head() * e_ : 0) + std::max(forward, differentiated + head() * e_);
  }
  bool is_bf16() const { return compute_.dtype == at::kBFloat16; }

 private:
  // Attention takes grouped keys and values as they are, except in float on a GPU, where each head gets its own.
  std::int64_t keys_of_attention() const { return is_bf16() || device_ == at::kCPU ? key() : query(); }
  static std::string block_of(const std::string& module) { return module.substr(0, module.rfind('.')); }
  std::int64_t query() const { return config_.num_attention_heads * config_.head_dim; }
  std::int64_t key() const { return config_.num_key_value_heads * config_.head_dim; }

  const ModelConfig& config_;
  const ComputeOptions& compute_;
  at::DeviceType device_;
  std::int64_t e_;
  std::int64_t weights_ = 0, layer_weights_ = 0, adapter_ = 0;
};

// What is in memory at one moment, besides what always is.
struct Moment {
  std::int64_t gradients = 0, activations = 0, log_probs = 0;
  std::int64_t sum() const { return gradients + activations + log_probs; }
};

// The layers through which gradients flow: starting with the first that has an adapter, or all.
std::int64_t trained_layers(const MemoryNeed& need) {
  constexpr std::string_view kLayers = "model.layers.";
  std::int64_t first = need.adapted.empty() ? 0 : need.config.num_hidden_layers;
  for (const AdaptedModule& module : need.adapted)
    first = std::min<std::int64_t>(first, std::atoll(module.name.c_str() + kLayers.size()));
  return need.config.num_hidden_layers - first;
}

Moment peak_of(const MemoryNeed& need, const Sizes& sizes) {
  const std::int64_t n = need.batch.tokens, m = need.batch.completion_tokens, layers = trained_layers(need);
  const bool frozen = sizes.adapter() > 0;
  const std::int64_t head_gradient = frozen ? 0 : sizes.head() * kFloatBytes;
  const std::int64_t all_gradients = sizes.trained() * kFloatBytes;
  const std::int64_t of_layer = frozen ? sizes.kept_if_frozen() + sizes.kept_by(need) / layers : sizes.kept();
  const std::int64_t layer = of_layer * n + sizes.cast();
  const bool checkpoints = need.compute.checkpoints_layers;
  const std::int64_t kept = layers * (checkpoints ? sizes.hidden() * n : layer);
  const std::int64_t again = checkpoints ? layer - sizes.hidden() * n : 0;  // recomputed, besides its input
  // The tables of the rotation, and the batch's tensors of token ids and numbers. The latter are made first, for all
  // tokens of the update.
  const std::int64_t around =
      n * 2 * need.config.head_dim * sizes.element() + need.batch.tokens_of_update * kBatchBytes;
  const std::int64_t places = 3 * m * sizes.hidden();  // before and after the last norm, and a gradient
  // There are no gradients before the first micro-batch.
  const std::int64_t before = need.batch.count > 1 ? all_gradients : 0;

  const Moment at_head{
      .gradients = before + head_gradient, .activations = kept + around + places, .log_probs = sizes.log_probs(m)};
  const Moment at_last_layer{.gradients = before + head_gradient,
                             .activations = kept + again + sizes.between() * n + around};
  if (frozen) return at_head.sum() > at_last_layer.sum() ? at_head : at_last_layer;  // the embedding has no gradient
  // The embedding's gradient is in float; if the embedding is tied to the head, the head's gradient is there as well.
  const std::int64_t last_gradients = head_gradient * (need.config.tie_word_embeddings ? 2 : 1);
  const Moment at_embedding{.gradients = all_gradients + last_gradients,
                            .activations = around + n * need.config.hidden_size * kFloatBytes};
  return std::max({at_head, at_last_layer, at_embedding},
                  [](const Moment& a, const Moment& b) { return a.sum() < b.sum(); });
}

}  // namespace

LargestBatch largest_batch(const UpdateRows& update) {
  const RowTokens& tokens = update.tokens;
  const std::int64_t row = tokens.longest_prompt + tokens.completion;
  std::int64_t together = std::min(update.rows, update.most_rows), all = together * row;
  if (update.most_tokens > 0) {
    together = std::min(together, std::max<std::int64_t>(1, update.most_tokens / row));
    all = std::min(all, std::max(row, update.most_tokens));
  }
  const double share =  // the largest share of a row that a completion takes
      static_cast<double>(tokens.completion) / static_cast<double>(tokens.shortest_prompt + tokens.completion);
  return {.rows = together,
          .tokens = all,
          .completion_tokens = static_cast<std::int64_t>(share * static_cast<double>(all)),
          .count = (update.rows + together - 1) / together,
          .tokens_of_update = update.rows * row,
          .row_tokens = row};
}

std::int64_t MemoryPlan::peak_bytes() const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const MemoryPart& part) { return sum + part.bytes; });
}

std::int64_t MemoryPlan::peak_bytes_of_libtorch() const {
  std::int64_t sum = 0;
  for (const MemoryPart& part : parts)
    if (part.of_libtorch) sum += part.bytes;
  return sum;
}

MemoryPlan plan_memory(const MemoryNeed& need) {
  const Sizes sizes(need);
  const Moment peak = peak_of(need, sizes);
  const bool frozen = sizes.adapter() > 0;
  const std::string frozen_weights = cat(sizes.is_bf16() ? "frozen bf16 weights" : "frozen f32 weights",
                                         need.shares_base ? " (shared by all processes)" : "");
  const std::int64_t sent = need.sends_adapter_alone ? sizes.adapter() : sizes.weights();
  MemoryPlan plan{{{frozen ? frozen_weights : "f32 weights", sizes.weights() * (frozen ? sizes.element() : kFloatBytes),
                    !need.shares_base},
                   {"f32 adapter", sizes.adapter() * kFloatBytes},
                   {"AdamW's moments", 2 * sizes.trained() * kFloatBytes},
                   {"gradients", peak.gradients},
                   {need.compute.checkpoints_layers ? "activations (checkpointed)" : "activations", peak.activations},
                   {"log-probabilities", peak.log_probs},
                   {"reference", need.has_reference && !frozen ? sizes.weights() * sizes.element() : 0},
                   {"slots", need.slots * sent * need.slot_weight_bytes, /*of_libtorch=*/false}}};
  std::erase_if(plan.parts, [](const MemoryPart& part) { return part.bytes == 0; });
  return plan;
}

std::string gib(std::int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / kGiB); }

std::string to_string(const MemoryPlan& plan) {
  std::string text = cat(gib(plan.peak_bytes()), ":");
  for (const MemoryPart& part : plan.parts)
    absl::StrAppendFormat(&text, "%s %s %.2f", &part == &plan.parts.front() ? "" : ",", part.name,
                          static_cast<double>(part.bytes) / kGiB);
  return text;
}

}  // namespace bascule::ref
