#include <bascule/trainer_ref/text/pre_tokens.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Stretches = std::vector<Stretch>;

// Joins neighbours: `joins` is asked with what a stretch and the one before it are.
template <typename Joins>
void join(Stretches& stretches, Joins joins) {
  std::size_t kept = 0;
  bool previous = false;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const Stretch stretch = stretches[i];
    if (kept > 0 && joins(stretch.is_match, previous)) {
      Span& span = stretches[kept - 1].span;
      span = {std::min(span.begin, stretch.span.begin), std::max(span.end, stretch.span.end)};
    } else {
      stretches[kept++] = stretch;
    }
    previous = stretch.is_match;
  }
  stretches.resize(kept);
}

void behave(Stretches& stretches, SplitBehavior behavior) {
  const auto first_match = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
    case SplitBehavior::kIsolated: return;
    case SplitBehavior::kRemoved: std::erase_if(stretches, [](const Stretch& s) { return s.is_match; }); return;
    case SplitBehavior::kContiguous:
      join(stretches, [](bool match, bool previous) { return match == previous; });
      return;
    case SplitBehavior::kMergedWithPrevious: join(stretches, first_match); return;
    case SplitBehavior::kMergedWithNext:
      std::reverse(stretches.begin(), stretches.end());
      join(stretches, first_match);
      std::reverse(stretches.begin(), stretches.end());
  }
}

}  // namespace

PreTokens::PreTokens(std::string whole, bool at_start) : text(std::move(whole)) {
  if (!text.empty()) list.push_back({{0, text.size()}, at_start});
}

absl::Status split(PreTokens& pre_tokens, const Pattern& pattern, SplitBehavior behavior, bool inverted) {
  std::vector<PreToken> list;
  Stretches stretches;
  for (const PreToken& pre_token : pre_tokens.list) {
    stretches.clear();
    BASCULE_TRY(pattern.find(pre_tokens.text, pre_token.span, stretches));
    if (inverted) {
      for (Stretch& stretch : stretches) stretch.is_match = !stretch.is_match;
    }
    behave(stretches, behavior);
    for (const auto& [span, is_match] : stretches) {
      if (span.begin < span.end) list.push_back({span, pre_token.at_start && span.begin == pre_token.span.begin});
    }
  }
  pre_tokens.list = std::move(list);
  return absl::OkStatus();
}

}  // namespace bascule::ref
