#include <bascule/bench/train/update_bench.h>

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <chrono>
#include <random>

#include <bascule/trainer_ref/grpo/supervised.h>
#include <bascule/transport/text.h>

namespace bascule::bench {
namespace {

using ref::Policy, ref::Rollout, ref::TrainingRow;

constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingDeviceAllocator::DeviceStats statistics_of(at::Device device) {
  return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
}

// Prompts and completions that rows point into.
struct Rollouts {
  std::vector<std::vector<std::int64_t>> prompts;
  std::vector<Rollout> rollouts;

  explicit Rollouts(const UpdateShape& shape) {
    std::mt19937_64 random(1);
    const auto tokens = [&](std::int64_t count) {
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < count; ++i)
        ids.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.config.vocab_size)));
      return ids;
    };
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      prompts.push_back(tokens(shape.prompt_tokens));
      Rollout& rollout = rollouts.emplace_back();
      rollout.token_ids = tokens(shape.row_tokens - shape.prompt_tokens);
      rollout.log_probs.assign(rollout.token_ids.size(), -12.0f);
      rollout.advantage = row % 2 == 0 ? 1 : -1;
    }
  }
  std::vector<TrainingRow> rows() const {
    std::vector<TrainingRow> rows;
    for (std::size_t i = 0; i < rollouts.size(); ++i) rows.push_back({&prompts[i], &rollouts[i]});
    return rows;
  }
};

void wait_for(const Policy& policy) {  // until the device has done all
  policy.weights().begin()->second.detach().flatten().narrow(0, 0, 1).item<float>();
}

}  // namespace

double operations_of(const UpdateShape& shape) {
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
  return 6 * (layers * tokens + head * completions) + 12 * pairs * heads * number(config.num_hidden_layers);
}

ref::MemoryPlan plan_of(const UpdateShape& shape) {
  return ref::plan_memory({.config = shape.config,
                           .compute = shape.compute,
                           .device = shape.device.type(),
                           .batch = ref::largest_batch(
                               shape.rows, shape.prompt_tokens, shape.row_tokens - shape.prompt_tokens,
                               static_cast<std::int64_t>(shape.update.micro_batch), shape.update.micro_batch_tokens)});
}

absl::StatusOr<UpdateTimes> time_updates(const UpdateShape& shape, int warm_ups, int repeat) {
  const Rollouts rollouts(shape);
  const std::vector<TrainingRow> rows = rollouts.rows();
  UpdateTimes times;
  try {
    BASCULE_ASSIGN(const Policy policy, ref::random_policy(shape.config, 1, shape.device, shape.compute));
    ref::Optimizer optimizer(policy.weights(), {.learning_rate = 1e-6});
    if (shape.device.is_cuda()) at::getDeviceAllocator(at::kCUDA)->resetPeakStats(shape.device.index());
    for (int i = 0; i < warm_ups + repeat; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const ref::UpdateStatistics update = ref::update_policy(policy, nullptr, optimizer, rows, shape.update);
      wait_for(policy);
      if (update.skipped > 0) return absl::InternalError("an update had gradients that are not finite");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (i >= warm_ups) times.seconds.push_back(taken.count());
    }
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        cat(error.what_without_backtrace(), " (a smaller --micro-batch-tokens, or --checkpointing, needs less)"));
  }
  if (shape.device.is_cuda()) {
    times.peak_bytes = statistics_of(shape.device).allocated_bytes[kAll].peak;
    times.kept_bytes = statistics_of(shape.device).reserved_bytes[kAll].peak;
  }
  return times;
}

std::optional<std::int64_t> log_probs_bytes(const UpdateShape& shape) {
  if (!shape.device.is_cuda()) return std::nullopt;
  const std::int64_t places = shape.rows * (shape.row_tokens - shape.prompt_tokens);
  const at::TensorOptions on_device(shape.device);
  const std::int64_t before = statistics_of(shape.device).allocated_bytes[kAll].current;
  const at::Tensor hidden =
      at::randn({places, shape.config.hidden_size}, on_device.dtype(shape.compute.dtype)).requires_grad_();
  const at::Tensor head =
      at::randn({shape.config.vocab_size, shape.config.hidden_size}, on_device.dtype(at::kFloat)).requires_grad_();
  const at::Tensor targets = at::randint(shape.config.vocab_size, {places}, on_device.dtype(at::kLong));
  const std::int64_t chunk =
      shape.compute.logit_chunk > 0
          ? shape.compute.logit_chunk
          : ref::default_logit_chunk(shape.config.vocab_size, shape.compute.dtype, shape.device.type());
  at::getDeviceAllocator(at::kCUDA)->resetPeakStats(shape.device.index());
  ref::token_log_probs(hidden, head, targets, chunk).log_probs.sum().backward();
  const auto bytes = [](const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); };
  return statistics_of(shape.device).allocated_bytes[kAll].peak - before - bytes(targets) - 2 * bytes(hidden) -
         2 * bytes(head);
}

}  // namespace bascule::bench
