#include <bascule/trainer_ref/grpo/rollout/rollout_filter.h>

#include <algorithm>
#include <optional>

#include <bascule/transport/status.h>

namespace bascule::ref {

void PublishedVersions::add(std::uint64_t epoch, std::uint64_t version) {
  epoch_ = epoch;
  versions_.push_back(version);
}

bool PublishedVersions::has(std::uint64_t epoch, std::uint64_t version) const {
  return epoch == epoch_ && std::binary_search(versions_.begin(), versions_.end(), version);
}

std::uint64_t PublishedVersions::behind(std::uint64_t version) const {
  return static_cast<std::uint64_t>(versions_.end() - std::upper_bound(versions_.begin(), versions_.end(), version));
}

FilterResult filter_rollouts(std::vector<Generation>& generations, const PublishedVersions& published,
                             std::int64_t max_staleness) {
  FilterResult result;
  double staleness = 0, tokens = 0;
  for (Generation& generation : generations) {
    const auto foreign_token = [&](const Rollout& rollout) -> std::optional<std::size_t> {
      for (std::size_t i = 0; i < rollout.versions.size(); ++i)
        if (!published.has(rollout.epochs[i], rollout.versions[i])) return i;
      return std::nullopt;
    };
    const auto is_stale = [&](std::uint64_t version) {
      return published.behind(version) > static_cast<std::uint64_t>(max_staleness);
    };
    std::erase_if(generation.rollouts, [&](const Rollout& rollout) {
      if (const std::optional<std::size_t> i = foreign_token(rollout)) {
        ++result.foreign;
        const bool named = std::any_of(result.by.begin(), result.by.end(),
                                       [&](const auto& other) { return other.first == generation.engine; });
        if (!named)
          result.by.emplace_back(generation.engine,
                                 cat("version ", rollout.versions[*i], " of epoch ", rollout.epochs[*i]));
        return true;
      }
      const bool cut = rollout.token_ids.empty() || rollout.finish_reason == "abort";
      const bool stale = !cut && std::any_of(rollout.versions.begin(), rollout.versions.end(), is_stale);
      result.cut += cut ? 1 : 0;
      result.stale += stale ? 1 : 0;
      return cut || stale;
    });
    result.kept += generation.rollouts.size();
    for (const Rollout& rollout : generation.rollouts) {
      for (const std::uint64_t version : rollout.versions) staleness += static_cast<double>(published.behind(version));
      tokens += static_cast<double>(rollout.versions.size());
      const std::uint64_t oldest = *std::min_element(rollout.versions.begin(), rollout.versions.end());
      const std::size_t lag = published.behind(oldest);
      result.lags.resize(std::max(result.lags.size(), lag + 1));
      ++result.lags[lag];
    }
  }
  if (tokens > 0) result.staleness_mean = staleness / tokens;
  return result;
}

FilterResult RolloutFilter::apply(const std::vector<std::string>& urls, std::vector<Generation>& generations) const {
  FilterResult result = filter_rollouts(generations, versions_, options_.max_staleness);
  for (const auto& [engine, version] : result.by)
    options_.log(cat("engine ", urls[engine], " answers with ", version,
                     ", which this run never published; its completions are dropped: start it with the --sync of this "
                     "run"));
  return result;
}

absl::Status RolloutFilter::check(std::int64_t step, std::size_t asked, const FilterResult& result) const {
  if (static_cast<double>(result.kept) >= std::max(1.0, options_.min_batch * static_cast<double>(asked)))
    return absl::OkStatus();
  return unavailable("step ", step, ": ", result.kept, " of ", asked,
                     " completions are left, fewer than --min-batch=", options_.min_batch, " of them: ", result.stale,
                     " are of versions more than --max-staleness=", options_.max_staleness, " behind, ", result.foreign,
                     " are of another trainer's versions, and ",
                     asked - std::min(asked, result.kept + result.stale + result.foreign),
                     " were lost; the log says how");
}

}  // namespace bascule::ref
