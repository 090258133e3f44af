// What the trainer asks of its engines, and what it takes of their answers.
#include <algorithm>
#include <set>
#include <utility>

#include <bascule/trainer_ref/grpo/dynamic_sampling.h>
#include <bascule/trainer_ref/grpo/random.h>
#include <bascule/trainer_ref/grpo/rollout_figures.h>
#include <bascule/trainer_ref/grpo/trainer.h>
#include <bascule/transport/text.h>

namespace bascule::ref {

// The step's completions, a group a problem, without those that were lost or are too stale.
absl::StatusOr<std::vector<Group>> Trainer::roll_out(std::int64_t step, StepTelemetry& telemetry) {
  BASCULE_ASSIGN(std::vector<Generation> generations, stream_->next());
  RolloutFigures figures = figures_of(generations);
  const std::size_t asked = options_.prompts_per_step * static_cast<std::size_t>(options_.group_size);
  BASCULE_ASSIGN(const Sifted sifted, filter_.apply(step, asked, pool_->urls(), generations));
  const std::vector<std::size_t> prompts = prompts_of(step);
  std::vector<Group> groups =
      groups_of(problems_at(prompts), requests_for(prompts, step, 0), std::move(generations), prompts_.tokenizer());
  std::erase_if(groups, [](const Group& group) { return group.rollouts.empty(); });
  figures.dropped = static_cast<std::int64_t>(asked) - static_cast<std::int64_t>(sifted.kept);
  figures.staleness_mean = sifted.staleness_mean;
  figures.lags = sifted.lags;
  telemetry.rolled_out(std::move(figures));
  return groups;
}

// What `generations` took, and how the engines were used since the last step.
RolloutFigures Trainer::figures_of(const std::vector<Generation>& generations) {
  const std::vector<std::string> urls = pool_->urls();
  const std::vector<EngineUse> use = pool_->use();
  RolloutFigures figures{
      .tail_seconds = tail_seconds(generations),
      .spans = engine_spans(generations, urls, [this](Stopwatch::Time time) { return seconds_since_start(time); })};
  use_before_.resize(use.size());
  for (std::size_t engine = 0; engine < use.size(); ++engine)
    figures.use.emplace_back(urls[engine], use[engine] - std::exchange(use_before_[engine], use[engine]));
  return figures;
}

// Flat groups give way to those of further problems, with --dynamic-sampling; how many did. Where none varies, they all
// stay. What the engines do not answer is done without: the step has completions already.
absl::StatusOr<std::int64_t> Trainer::replace_flat(std::int64_t step, std::vector<Group>& groups) {
  const std::vector<std::size_t> first = prompts_of(step);
  std::set<std::size_t> asked(first.begin(), first.end());
  std::size_t place = first.size();
  std::vector<Group> varied;
  if (options_.dynamic_sampling > 0) varied = take_varied(groups);
  const std::size_t varied_at_first = varied.size();
  for (std::int64_t round = 0; round < options_.dynamic_sampling && varied.size() < first.size(); ++round) {
    const std::vector<std::size_t> prompts =
        further_prompts(task_.train.size(), first.size() - varied.size(), options_.seed, step, asked);
    if (prompts.empty()) break;
    asked.insert(prompts.begin(), prompts.end());
    std::vector<RolloutRequest> requests = requests_for(prompts, step, std::exchange(place, place + prompts.size()));
    absl::StatusOr<std::vector<Generation>> generations = pool_->answers_to(pool_->ask_first(requests));
    if (absl::IsCancelled(generations.status())) return generations.status();
    if (!generations.ok()) break;
    sift(*generations, filter_.versions(), options_.max_staleness);
    std::vector<Group> more =
        groups_of(problems_at(prompts), std::move(requests), *std::move(generations), prompts_.tokenizer());
    std::erase_if(more, [](const Group& group) { return group.rollouts.empty(); });
    BASCULE_TRY(score(more).status());
    for (Group& group : take_varied(more)) varied.push_back(std::move(group));
  }
  const auto replaced = static_cast<std::int64_t>(varied.size() - varied_at_first);
  if (!varied.empty()) groups = std::move(varied);
  return replaced;
}

std::vector<std::size_t> Trainer::prompts_of(std::int64_t step) const {
  // Steps count from 1, the order of problems from 0.
  return prompts_of_step(task_.train.size(), options_.prompts_per_step, options_.seed, step - 1);
}

std::vector<const Problem*> Trainer::problems_at(const std::vector<std::size_t>& prompts) const {
  std::vector<const Problem*> problems;
  for (const std::size_t i : prompts) problems.push_back(&task_.train[i]);
  return problems;
}

// Called on the stream's thread as well: reads what never changes. Each place of a step has a seed of its own.
std::vector<RolloutRequest> Trainer::requests_for(const std::vector<std::size_t>& prompts, std::int64_t step,
                                                  std::size_t first_place) const {
  std::vector<RolloutRequest> requests;
  for (const Problem* problem : problems_at(prompts)) {
    const std::uint64_t place = static_cast<std::uint64_t>(step) << 32 | (first_place + requests.size());
    requests.push_back({.prompt = *prompts_.tokens_of(*problem),  // create() has looked at them all
                        .completions = options_.group_size,
                        .max_tokens = options_.max_tokens,
                        .temperature = options_.update.temperature,
                        .top_k = options_.top_k,
                        .top_p = options_.top_p,
                        .seed = mix(options_.seed ^ mix(place))});
  }
  return requests;
}

}  // namespace bascule::ref
