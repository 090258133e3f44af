// What the trainer asks of its engines, and what it takes of their answers.
#include <algorithm>
#include <utility>

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
  std::vector<Group> groups =
      groups_of(problems_of(step), requests_of(step), std::move(generations), prompts_.tokenizer());
  std::erase_if(groups, [](const Group& group) { return group.rollouts.empty(); });
  if (options_.colocate) BASCULE_TRY(pool_->sleep());
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

std::vector<const Problem*> Trainer::problems_of(std::int64_t step) const {
  std::vector<const Problem*> problems;
  // Steps count from 1, the order of problems from 0.
  for (const std::size_t i : prompts_of_step(task_.train.size(), options_.prompts_per_step, options_.seed, step - 1))
    problems.push_back(&task_.train[i]);
  return problems;
}

// Called on the stream's thread as well: reads what never changes.
std::vector<RolloutRequest> Trainer::requests_of(std::int64_t step) const {
  std::vector<RolloutRequest> requests;
  for (const Problem* problem : problems_of(step)) {
    const std::uint64_t place = static_cast<std::uint64_t>(step) << 32 | requests.size();
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
