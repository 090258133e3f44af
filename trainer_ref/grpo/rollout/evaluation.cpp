#include <bascule/trainer_ref/grpo/rollout/evaluation.h>

#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

double mean_reward(std::span<const CompletionGroup> groups) {
  double sum = 0, scored = 0;
  for (const CompletionGroup& group : groups)
    for (const Rollout& rollout : group.rollouts) {
      sum += rollout.reward.value_or(0);
      scored += rollout.reward ? 1 : 0;
    }
  return sum / scored;
}

}  // namespace

std::vector<CompletionGroup> groups_of(std::vector<RolloutRequest> requests, std::vector<Generation> generations,
                                       const Tokenizer& tokenizer) {
  std::vector<CompletionGroup> groups;
  groups.reserve(requests.size());
  for (RolloutRequest& request : requests)
    groups.push_back({.problem = request.problem, .prompt = std::move(request.prompt), .rollouts = {}});
  for (Generation& generation : generations)
    for (Rollout& rollout : generation.rollouts) {
      CompletionGroup& group = groups[generation.request];
      rollout.text = tokenizer.decode_after(group.prompt, rollout.token_ids);
      group.rollouts.push_back(std::move(rollout));
    }
  return groups;
}

absl::StatusOr<Evaluation> evaluate(EnginePool& pool, const PromptWriter& prompts, std::span<const Problem> problems,
                                    std::span<const WeightedReward> rewards, const EvaluationOptions& options) {
  // Sampled and greedy requests go out together, for a single wait.
  std::vector<RolloutRequest> requests;
  for (const bool greedy : {false, true})
    for (std::size_t i = 0; i < problems.size(); ++i) {
      BASCULE_ASSIGN(std::vector<std::int64_t> prompt, prompts.tokens_of(problems[i]));
      requests.push_back({.problem = &problems[i],
                          .prompt = std::move(prompt),
                          .completions = greedy ? 1 : options.samples,
                          .max_tokens = options.max_tokens,
                          .temperature = greedy ? 0.0 : 1.0,
                          .seed = mix(options.seed ^ mix(i))});
    }
  BASCULE_ASSIGN(std::vector<Generation> generations, pool.generate(requests));
  std::vector<CompletionGroup> groups = groups_of(std::move(requests), std::move(generations), prompts.tokenizer());

  Evaluation evaluation;
  const auto middle = groups.begin() + static_cast<std::ptrdiff_t>(problems.size());
  evaluation.likeliest.assign(std::make_move_iterator(middle), std::make_move_iterator(groups.end()));
  groups.erase(middle, groups.end());
  evaluation.sampled = std::move(groups);
  BASCULE_ASSIGN(evaluation.rewards, score_groups(rewards, evaluation.sampled));
  BASCULE_TRY(score_groups(rewards, evaluation.likeliest).status());
  evaluation.reward = mean_reward(evaluation.sampled);
  evaluation.greedy = mean_reward(evaluation.likeliest);
  return evaluation;
}

nlohmann::json shown_completions(const Evaluation& evaluation, std::size_t count) {
  const auto texts = [](const CompletionGroup& group) {
    nlohmann::json list = nlohmann::json::array();
    for (const Rollout& rollout : group.rollouts) list.push_back(rollout.text);
    return list;
  };
  const auto rewards = [](const CompletionGroup& group) {
    nlohmann::json list = nlohmann::json::array();
    for (const Rollout& rollout : group.rollouts)
      list.push_back(rollout.reward ? nlohmann::json(*rollout.reward) : nlohmann::json());
    return list;
  };
  nlohmann::json shown = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min(count, evaluation.sampled.size()); ++i)
    shown.push_back({{"prompt", shown_prompt(*evaluation.sampled[i].problem)},
                     {"answer", evaluation.sampled[i].problem->answer},
                     {"sampled", texts(evaluation.sampled[i])},
                     {"sampled_rewards", rewards(evaluation.sampled[i])},
                     {"greedy", texts(evaluation.likeliest[i])},
                     {"greedy_rewards", rewards(evaluation.likeliest[i])}});
  return shown;
}

}  // namespace bascule::ref
