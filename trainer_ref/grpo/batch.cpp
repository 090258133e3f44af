#include <bascule/trainer_ref/grpo/batch.h>

#include <algorithm>

namespace bascule::ref {

Batch make_batch(std::span<const TrainingRow> rows, at::Device device) {
  const auto b = static_cast<std::int64_t>(rows.size());
  std::int64_t s = 0, t = 0;
  for (const TrainingRow& row : rows) {
    const std::size_t completion = row.rollout->token_ids.size();
    s = std::max(s, static_cast<std::int64_t>(row.prompt->size() + completion));
    t = std::max(t, static_cast<std::int64_t>(completion));
  }
  Batch batch{.rows = b,
              .row_tokens = s,
              .token_ids = at::zeros({b, s}, at::kLong),
              .positions = at::arange(s, at::kLong).repeat({b}),
              .sources = at::zeros({b, t}, at::kLong),
              .targets = at::zeros({b, t}, at::kLong),
              .mask = at::zeros({b, t}),
              .behaviour_log_probs = at::zeros({b, t}),
              .advantages = at::zeros({b})};
  auto token_ids = batch.token_ids.accessor<std::int64_t, 2>();
  auto sources = batch.sources.accessor<std::int64_t, 2>();
  auto targets = batch.targets.accessor<std::int64_t, 2>();
  auto mask = batch.mask.accessor<float, 2>();
  auto behaviour = batch.behaviour_log_probs.accessor<float, 2>();
  auto advantages = batch.advantages.accessor<float, 1>();
  for (std::int64_t i = 0; i < b; ++i) {
    const std::vector<std::int64_t>& prompt = *rows[static_cast<std::size_t>(i)].prompt;
    const Rollout& rollout = *rows[static_cast<std::size_t>(i)].rollout;
    const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
    std::copy(prompt.begin(), prompt.end(), token_ids[i].data());
    std::copy(rollout.token_ids.begin(), rollout.token_ids.end(), token_ids[i].data() + prompt_tokens);
    std::copy(rollout.token_ids.begin(), rollout.token_ids.end(), targets[i].data());
    std::copy(rollout.log_probs.begin(), rollout.log_probs.end(), behaviour[i].data());
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(rollout.token_ids.size()); ++j) {
      sources[i][j] = i * s + prompt_tokens - 1 + j;  // the token before predicts this one
      mask[i][j] = 1;
    }
    advantages[i] = static_cast<float>(rollout.advantage);
  }
  batch.token_ids = batch.token_ids.flatten();
  batch.sources = batch.sources.flatten();
  for (at::Tensor* tensor : {&batch.token_ids, &batch.positions, &batch.sources, &batch.targets, &batch.mask,
                             &batch.behaviour_log_probs, &batch.advantages})
    *tensor = tensor->to(device);
  return batch;
}

}  // namespace bascule::ref
