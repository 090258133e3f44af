#include <bascule/trainer_ref/grpo/run/rollout_figures.h>

#include <algorithm>
#include <map>
#include <utility>

namespace bascule::ref {

std::vector<EngineSpan> engine_spans(const std::vector<Generation>& generations, const std::vector<std::string>& urls,
                                     const std::function<double(std::chrono::steady_clock::time_point)>& seconds) {
  std::map<std::pair<std::size_t, std::uint64_t>, EngineSpan> spans;
  for (const Generation& generation : generations)
    for (const Rollout& rollout : generation.rollouts)
      for (const std::uint64_t version : rollout.versions) {
        const double begin = seconds(generation.began), end = seconds(generation.ended);
        EngineSpan& span =
            spans.try_emplace({generation.engine, version}, EngineSpan{urls[generation.engine], version, begin, end, 0})
                .first->second;
        span.begin_seconds = std::min(span.begin_seconds, begin);
        span.end_seconds = std::max(span.end_seconds, end);
        ++span.tokens;
      }
  std::vector<EngineSpan> result;
  result.reserve(spans.size());
  for (auto& [key, span] : spans) result.push_back(std::move(span));
  return result;
}

double tail_seconds(const std::vector<Generation>& generations) {
  std::vector<std::chrono::steady_clock::time_point> ends;
  for (const Generation& generation : generations)
    if (!generation.rollouts.empty()) ends.push_back(generation.ended);
  if (ends.empty()) return 0;
  std::sort(ends.begin(), ends.end());
  return std::chrono::duration<double>(ends.back() - ends[(ends.size() * 9 + 9) / 10 - 1]).count();
}

}  // namespace bascule::ref
