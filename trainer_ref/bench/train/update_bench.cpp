#include <bascule/trainer_ref/bench/train/update_bench.h>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace bascule::bench {
namespace {

std::int64_t allocated_on(at::Device device) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index()).allocated_bytes[kAll].current;
}

}  // namespace

double operations_of(const ref::TrialShape& shape) {
  const ref::ModelConfig& config = shape.config;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double attention = number(config.hidden_size) * number(config.head_dim) *
                           number(2 * config.num_attention_heads + 2 * config.num_key_value_heads);
  const double mlp = 3 * number(config.hidden_size) * number(config.intermediate_size);
  const double layers = number(config.num_hidden_layers) * (attention + mlp);
  const double head = number(config.vocab_size) * number(config.hidden_size);
  const double tokens = number(shape.rows * shape.row_tokens);
  const double completions = number(shape.rows * (shape.row_tokens - shape.prompt_tokens));
  const double pairs = number(shape.rows) * number(shape.row_tokens) * number(shape.row_tokens + 1) / 2;
  const double heads = number(config.num_attention_heads * config.head_dim);
  double factors = 0;  // of an adapter
  if (shape.adapter)
    for (const ref::AdaptedModule& module : shape.adapter->adapted())
      factors += number(module.rank * (module.in + module.out));
  const double of_weight = shape.adapter ? 4 : 6;  // a frozen weight has no gradient
  return of_weight * (layers * tokens + head * completions) + 6 * factors * tokens +
         12 * pairs * heads * number(config.num_hidden_layers);
}

ref::MemoryPlan plan_of(const ref::TrialShape& shape) {
  return ref::plan_memory(
      {.config = shape.config,
       .compute = shape.compute,
       .device = shape.device.type(),
       .batch = ref::largest_batch({.rows = shape.rows,
                                    .tokens = {.shortest_prompt = shape.prompt_tokens,
                                               .longest_prompt = shape.prompt_tokens,
                                               .completion = shape.row_tokens - shape.prompt_tokens},
                                    .most_rows = static_cast<std::int64_t>(shape.update.micro_batch),
                                    .most_tokens = shape.update.micro_batch_tokens}),
       .adapted = shape.adapter ? shape.adapter->adapted() : std::vector<ref::AdaptedModule>()});
}

std::optional<std::int64_t> log_probs_bytes(const ref::TrialShape& shape) {
  if (!shape.device.is_cuda()) return std::nullopt;
  const std::int64_t places = shape.rows * (shape.row_tokens - shape.prompt_tokens);
  const at::TensorOptions on_device(shape.device);
  const std::int64_t before = allocated_on(shape.device);
  const at::Tensor hidden =
      at::randn({places, shape.config.hidden_size}, on_device.dtype(shape.compute.dtype)).requires_grad_();
  const at::Tensor head =
      at::randn({shape.config.vocab_size, shape.config.hidden_size}, on_device.dtype(at::kFloat)).requires_grad_();
  const at::Tensor targets = at::randint(shape.config.vocab_size, {places}, on_device.dtype(at::kLong));
  const std::int64_t chunk =
      shape.compute.logit_chunk > 0
          ? shape.compute.logit_chunk
          : ref::default_logit_chunk(shape.config.vocab_size, shape.compute.dtype, shape.device.type());
  ref::forget_peak(shape.device);
  ref::token_log_probs(hidden, head, targets, chunk).log_probs.sum().backward();
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); };
  return ref::peak_on(shape.device)->allocated_bytes - before - bytes(targets) - 2 * bytes(hidden) - 2 * bytes(head);
}

}  // namespace bascule::bench
