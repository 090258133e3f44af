#include <bascule/trainer_ref/grpo/rollout/staleness_filter.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {

Sifted StalenessFilter::apply(const std::vector<std::string>& urls, std::vector<Generation>& generations) const {
  Sifted sifted = sift(generations, versions_, options_.max_staleness);
  for (const auto& [engine, version] : sifted.by)
    options_.log(cat("engine ", urls[engine], " answers with ", version,
                     ", which this run never published; its completions are dropped: start it with the --sync of this "
                     "run"));
  return sifted;
}

absl::Status StalenessFilter::check(std::int64_t step, std::size_t asked, const Sifted& sifted) const {
  if (static_cast<double>(sifted.kept) >= std::max(1.0, options_.min_batch * static_cast<double>(asked)))
    return absl::OkStatus();
  return unavailable("step ", step, ": ", sifted.kept, " of ", asked,
                     " completions are left, fewer than --min-batch=", options_.min_batch, " of them: ", sifted.stale,
                     " are of versions more than --max-staleness=", options_.max_staleness, " behind, ", sifted.foreign,
                     " of another trainer's, and ",
                     asked - std::min(asked, sifted.kept + sifted.stale + sifted.foreign),
                     " were lost; the log says how");
}

}  // namespace bascule::ref
