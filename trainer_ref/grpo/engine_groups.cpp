#include <bascule/trainer_ref/grpo/engine_groups.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include <bascule/trainer_ref/grpo/data/random.h>
#include <bascule/trainer_ref/grpo/rollout/dynamic_sampling.h>
#include <bascule/trainer_ref/grpo/rollout/evaluation.h>
#include <bascule/trainer_ref/grpo/run/rollout_figures.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

EngineGroups::EngineGroups(const Parts& parts, std::int64_t first_step, std::int64_t last_step,
                           std::function<double(Stopwatch::Time)> seconds, std::function<void(std::string_view)> log)
    : parts_(parts),
      seconds_(std::move(seconds)),
      log_(std::move(log)),
      use_before_(parts.pool.use()),
      filter_({.max_staleness = parts.flags.engines.max_staleness,
               .min_batch = parts.flags.engines.min_batch,
               .log = log_}),
      stream_(parts.pool,
              {.first_step = first_step,
               .last_step = last_step,
               .sync_every = parts.flags.engines.sync_every,
               .max_staleness = parts.flags.engines.max_staleness},
              [this](std::int64_t step) { return requests_for(prompts_of(step), step, 0); }) {}

void EngineGroups::published(const SendReport& report) {
  GroupSource::published(report);
  filter_.published(report.epoch, report.version);
  stream_.published();
}

absl::StatusOr<EngineGroups::Rollouts> EngineGroups::next(std::int64_t step) {
  BASCULE_ASSIGN(auto asked, stream_.next());
  auto& [requests, generations] = asked;
  Rollouts rollouts;
  rollouts.figures = figures_of(generations);
  BASCULE_ASSIGN(const FilterResult result, filter_enough(step, requests, generations, rollouts.figures));
  rollouts.figures.staleness_mean = result.staleness_mean;
  rollouts.figures.lags = result.lags;
  rollouts.groups = answered(std::move(requests), std::move(generations));
  return rollouts;
}

// Applies the rollout filter to `generations`. If too few are left because others are too stale, requests those again:
// an engine that was stopped answers with its old version when it comes back. Adds the costs to `figures`.
absl::StatusOr<FilterResult> EngineGroups::filter_enough(std::int64_t step, const std::vector<RolloutRequest>& requests,
                                                         std::vector<Generation>& generations,
                                                         RolloutFigures& figures) {
  constexpr int kRounds = 5;
  std::size_t asked = 0;
  for (const RolloutRequest& request : requests) asked += static_cast<std::size_t>(request.completions);
  std::size_t asked_in_all = asked;
  FilterResult result = filter_.apply(parts_.pool.urls(), generations);
  absl::Status enough = filter_.check(step, asked, result);
  for (int round = 1; !enough.ok() && result.stale > 0 && round <= kRounds; ++round) {
    log_(cat("step ", step, ": ", result.stale, " of ", asked,
             " completions are of versions too old; requesting them again"));
    if (round > 1) absl::SleepFor(absl::Seconds(1));  // for the engine's next version to arrive
    std::vector<RolloutRequest> again = requests;
    for (const Generation& generation : generations)
      again[generation.request].completions -= static_cast<int>(generation.rollouts.size());
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < again.size(); ++i)
      if (again[i].completions > 0) places.push_back(i);
    std::erase_if(again, [](const RolloutRequest& request) { return request.completions <= 0; });
    asked_in_all += asked - result.kept;
    for (RolloutRequest& request : again) request.seed = mix(request.seed ^ static_cast<std::uint64_t>(round));
    BASCULE_ASSIGN(std::vector<Generation> more, parts_.pool.answers_to(parts_.pool.ask_first(std::move(again))));
    for (Generation& generation : more) generation.request = places[generation.request];
    const std::vector<EngineSpan> spans = engine_spans(more, parts_.pool.urls(), seconds_);
    figures.spans.insert(figures.spans.end(), spans.begin(), spans.end());
    std::move(more.begin(), more.end(), std::back_inserter(generations));
    result = filter_.apply(parts_.pool.urls(), generations);
    enough = filter_.check(step, asked, result);
  }
  BASCULE_TRY(enough);
  figures.dropped = static_cast<std::int64_t>(asked_in_all) - static_cast<std::int64_t>(result.kept);
  return result;
}

// The statistics of `generations`, and the engines' use since the last step.
RolloutFigures EngineGroups::figures_of(const std::vector<Generation>& generations) {
  const std::vector<std::string> urls = parts_.pool.urls();
  const std::vector<EngineUse> use = parts_.pool.use();
  RolloutFigures figures{.tail_seconds = tail_seconds(generations), .spans = engine_spans(generations, urls, seconds_)};
  use_before_.resize(use.size());
  for (std::size_t engine = 0; engine < use.size(); ++engine)
    figures.use.emplace_back(urls[engine], use[engine] - std::exchange(use_before_[engine], use[engine]));
  return figures;
}

absl::StatusOr<std::int64_t> EngineGroups::replace_flat(std::int64_t step, std::vector<CompletionGroup>& groups,
                                                        const Score& score) {
  const RolloutFlags& rollout_flags = parts_.flags.rollouts;
  if (rollout_flags.dynamic_sampling == 0) return 0;
  const std::vector<std::size_t> first = prompts_of(step);
  std::set<std::size_t> asked(first.begin(), first.end());
  std::size_t place = first.size();
  std::vector<CompletionGroup> varied = take_varied(groups);
  const std::size_t varied_at_first = varied.size();
  for (std::int64_t round = 0; round < rollout_flags.dynamic_sampling && varied.size() < first.size(); ++round) {
    const std::vector<std::size_t> prompts =
        further_prompts(parts_.task.train.size(), first.size() - varied.size(), rollout_flags.seed, step, asked);
    if (prompts.empty()) break;
    asked.insert(prompts.begin(), prompts.end());
    std::vector<RolloutRequest> requests = requests_for(prompts, step, std::exchange(place, place + prompts.size()));
    absl::StatusOr<std::vector<Generation>> generations = parts_.pool.answers_to(parts_.pool.ask_first(requests));
    if (absl::IsCancelled(generations.status())) return generations.status();
    if (!generations.ok()) {
      log_(cat("step ", step, ": no further groups in place of flat ones: ", message_of(generations.status())));
      break;
    }
    filter_rollouts(*generations, filter_.versions(), parts_.flags.engines.max_staleness);
    std::vector<CompletionGroup> more = answered(std::move(requests), *std::move(generations));
    if (more.empty()) continue;  // all too stale
    BASCULE_TRY(score(more));
    for (CompletionGroup& group : take_varied(more)) varied.push_back(std::move(group));
  }
  const auto replaced = static_cast<std::int64_t>(varied.size() - varied_at_first);
  if (!varied.empty()) groups = std::move(varied);
  return replaced;
}

std::vector<CompletionGroup> EngineGroups::answered(std::vector<RolloutRequest> requests,
                                                    std::vector<Generation> generations) const {
  std::vector<CompletionGroup> groups =
      groups_of(std::move(requests), std::move(generations), parts_.prompts.tokenizer());
  std::erase_if(groups, [](const CompletionGroup& group) { return group.rollouts.empty(); });
  return groups;
}

std::vector<std::size_t> EngineGroups::prompts_of(std::int64_t step) const {
  // Steps count from 1, the order of problems from 0.
  return prompts_of_step(parts_.task.train.size(), parts_.flags.rollouts.prompts_per_step, parts_.flags.rollouts.seed,
                         step - 1);
}

// Also called on the stream's thread: reads only immutable state. Each place of a step has its own seed.
std::vector<RolloutRequest> EngineGroups::requests_for(const std::vector<std::size_t>& prompts, std::int64_t step,
                                                       std::size_t first_place) const {
  const RolloutFlags& flags = parts_.flags.rollouts;
  std::vector<RolloutRequest> requests;
  for (const std::size_t prompt : prompts) {
    const Problem& problem = parts_.task.train[prompt];
    const std::uint64_t place = static_cast<std::uint64_t>(step) << 32 | (first_place + requests.size());
    requests.push_back({.problem = &problem,
                        .prompt = *parts_.prompts.tokens_of(problem),  // create() has checked them all
                        .completions = flags.group_size,
                        .max_tokens = flags.max_tokens,
                        .temperature = flags.temperature,
                        .top_k = flags.top_k,
                        .top_p = flags.top_p,
                        .min_p = flags.min_p,
                        .seed = mix(flags.seed ^ mix(place))});
  }
  return requests;
}

}  // namespace bascule::ref
