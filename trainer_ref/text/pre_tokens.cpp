#include <bascule/trainer_ref/text/pre_tokens.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Segments = std::vector<Segment>;

// Joins neighbours: `joins` gets what a segment and the one before it are.
template <typename Joins>
void join(Segments& segments, Joins joins) {
  std::size_t kept = 0;
  bool previous = false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment segment = segments[i];
    if (kept > 0 && joins(segment.is_match, previous)) {
      Span& span = segments[kept - 1].span;
      span = {std::min(span.begin, segment.span.begin), std::max(span.end, segment.span.end)};
    } else {
      segments[kept++] = segment;
    }
    previous = segment.is_match;
  }
  segments.resize(kept);
}

void behave(Segments& segments, SplitBehavior behavior) {
  const auto first_match = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
    case SplitBehavior::kIsolated: return;
    case SplitBehavior::kRemoved: std::erase_if(segments, [](const Segment& s) { return s.is_match; }); return;
    case SplitBehavior::kContiguous:
      join(segments, [](bool match, bool previous) { return match == previous; });
      return;
    case SplitBehavior::kMergedWithPrevious: join(segments, first_match); return;
    case SplitBehavior::kMergedWithNext:
      std::reverse(segments.begin(), segments.end());
      join(segments, first_match);
      std::reverse(segments.begin(), segments.end());
  }
}

}  // namespace

PreTokens::PreTokens(std::string whole, bool at_start) : text(std::move(whole)) {
  if (!text.empty()) list.push_back({{0, text.size()}, at_start});
}

absl::Status split(PreTokens& pre_tokens, const Pattern& pattern, SplitBehavior behavior, bool inverted) {
  std::vector<PreToken> list;
  Segments segments;
  for (const PreToken& pre_token : pre_tokens.list) {
    segments.clear();
    BASCULE_TRY(pattern.find(pre_tokens.text, pre_token.span, segments));
    if (inverted) {
      for (Segment& segment : segments) segment.is_match = !segment.is_match;
    }
    behave(segments, behavior);
    for (const auto& [span, is_match] : segments) {
      if (span.begin < span.end) list.push_back({span, pre_token.at_start && span.begin == pre_token.span.begin});
    }
  }
  pre_tokens.list = std::move(list);
  return absl::OkStatus();
}

}  // namespace bascule::ref
