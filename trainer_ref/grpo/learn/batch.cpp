#include <bascule/trainer_ref/grpo/learn/batch.h>

#include <algorithm>

namespace bascule::ref {

std::vector<std::span<const TrainingRow>> micro_batches_of(std::span<const TrainingRow> rows, std::size_t most_rows,
                                                           std::int64_t most_tokens) {
  std::vector<std::span<const TrainingRow>> micro_batches;
  while (!rows.empty()) {
    std::size_t count = 1;
    std::int64_t tokens = rows[0].tokens();
    for (; count < std::min(rows.size(), most_rows); ++count) {
      tokens += rows[count].tokens();
      if (most_tokens > 0 && tokens > most_tokens) break;
    }
    micro_batches.push_back(rows.first(count));
    rows = rows.subspan(count);
  }
  return micro_batches;
}

Batch make_batch(std::span<const TrainingRow> rows, at::Device device) {
  std::vector<std::int64_t> lengths, token_ids, positions, sources, targets, row_of;
  std::vector<float> completion_tokens, behaviour_log_probs, advantages;
  for (const TrainingRow& row : rows) {
    const Rollout& rollout = *row.rollout;
    const auto begin = static_cast<std::int64_t>(token_ids.size());
    const auto prompt_tokens = static_cast<std::int64_t>(row.prompt->size());
    token_ids.insert(token_ids.end(), row.prompt->begin(), row.prompt->end());
    token_ids.insert(token_ids.end(), rollout.token_ids.begin(), rollout.token_ids.end());
    for (std::int64_t i = 0; i < row.tokens(); ++i) positions.push_back(i);
    for (std::size_t i = 0; i < rollout.token_ids.size(); ++i) {
      if (!rollout.is_learned(i)) continue;
      sources.push_back(begin + prompt_tokens + static_cast<std::int64_t>(i) - 1);  // the previous token predicts it
      targets.push_back(rollout.token_ids[i]);
      behaviour_log_probs.push_back(rollout.log_probs.empty() ? 0 : rollout.log_probs[i]);  // none if supervised
    }
    row_of.resize(targets.size(), static_cast<std::int64_t>(lengths.size()));
    completion_tokens.push_back(static_cast<float>(rollout.learned_tokens()));
    advantages.push_back(static_cast<float>(rollout.advantage.value_or(0)));  // supervised training has none
    lengths.push_back(row.tokens());
  }
  const auto on_device = [&](const auto& values) { return at::tensor(values).to(device); };
  return {.rows = pack_rows(lengths, device),
          .token_ids = on_device(token_ids),
          .positions = on_device(positions),
          .sources = on_device(sources),
          .targets = on_device(targets),
          .row_of = on_device(row_of),
          .completion_tokens = on_device(completion_tokens),
          .behaviour_log_probs = on_device(behaviour_log_probs),
          .advantages = on_device(advantages)};
}

}  // namespace bascule::ref
