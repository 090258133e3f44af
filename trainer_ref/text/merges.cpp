#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include <bascule/trainer_ref/text/bpe.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Up to this length, looking through all pairs for each merge is faster than a heap of them.
constexpr std::size_t kShort = 48;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

using Texts = std::pair<std::string, std::string>;

absl::StatusOr<Texts> texts_of(const nlohmann::json& pair) {
  if (pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
    return Texts(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  if (pair.is_string()) {
    const auto& text = pair.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return Texts(text.substr(0, space), text.substr(space + 1));
    }
  }
  return invalid_argument(R"(merges: expected ["a", "b"] or "a b", found )", pair.dump());
}

}  // namespace

absl::StatusOr<Merges> Merges::read(const nlohmann::json& list, const Vocabulary& vocabulary) {
  Merges merges;
  merges.merges_.reserve(list.size());
  std::uint32_t rank = 0;
  for (const nlohmann::json& pair : list) {
    // merges.txt began with such a line, and some files still do.
    if (pair.is_string() && pair.get_ref<const std::string&>().starts_with("#version")) continue;
    BASCULE_ASSIGN(const Texts texts, texts_of(pair));
    const std::optional<std::int32_t> left = vocabulary.id_of(texts.first), right = vocabulary.id_of(texts.second),
                                      whole = vocabulary.id_of(texts.first + texts.second);
    if (!left || !right || !whole) {
      const std::string& missing = !left ? texts.first : !right ? texts.second : texts.first + texts.second;
      return invalid_argument("merges: expected tokens, found ", pair.dump(), " (the vocabulary has no '", missing,
                              "')");
    }
    merges.merges_[key_of(*left, *right)] = {rank++, *whole};  // of a pair that occurs twice, the last counts
  }
  return merges;
}

Merge Merges::find(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? Merge{} : found->second;
}

void Merges::apply(std::vector<std::int32_t>& symbols, const std::stop_token& stop) const {
  if (symbols.size() < 2) return;
  symbols.resize(symbols.size() <= kShort ? apply_short(symbols.data(), symbols.size())
                                          : apply_long(symbols.data(), symbols.size(), stop));
}

std::size_t Merges::apply_short(std::int32_t* symbols, std::size_t count) const {
  std::array<Merge, kShort> pairs;  // [i]: of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == Merge::kNone) break;
    symbols[best] = pairs[best].id;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    std::copy(pairs.begin() + static_cast<std::ptrdiff_t>(best) + 1,
              pairs.begin() + static_cast<std::ptrdiff_t>(count) - 1,
              pairs.begin() + static_cast<std::ptrdiff_t>(best));
    --count;
    if (best > 0) pairs[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = find(symbols[best], symbols[best + 1]);
  }
  return count;
}

std::size_t Merges::apply_long(std::int32_t* symbols, std::size_t count, const std::stop_token& stop) const {
  // Symbols stay in place; the right one of a merged pair becomes kGone, and is skipped.
  constexpr std::int32_t kGone = -1;
  std::vector<std::uint32_t> next(count), previous(count);
  struct Candidate {
    std::uint32_t rank, at;
    std::int32_t id;
    bool operator<(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };
  std::vector<Candidate> first;
  const auto candidate = [&](std::uint32_t at, std::uint32_t right) {
    const Merge merge = find(symbols[at], symbols[right]);
    return Candidate{merge.rank, at, merge.id};
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: beyond the end
    if (i + 1 < count) {
      if (const Candidate pair = candidate(i, i + 1); pair.rank != Merge::kNone) first.push_back(pair);
    }
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  constexpr std::size_t kBetweenLooks = 4096;  // at `stop`
  for (std::size_t merged = 1; !queue.empty(); ++merged) {
    if (merged % kBetweenLooks == 0 && stop.stop_requested()) break;
    const Candidate top = queue.top();
    queue.pop();
    const std::uint32_t right = next[top.at];
    // An older entry: one of the two was merged meanwhile.
    if (symbols[top.at] == kGone || right == count || find(symbols[top.at], symbols[right]).id != top.id) continue;
    symbols[top.at] = top.id;
    symbols[right] = kGone;
    next[top.at] = next[right];
    if (next[right] < count) previous[next[right]] = top.at;
    const auto push = [&](std::uint32_t left_at, std::uint32_t right_at) {
      if (const Candidate pair = candidate(left_at, right_at); pair.rank != Merge::kNone) queue.push(pair);
    };
    if (previous[top.at] < count) push(previous[top.at], top.at);
    if (next[top.at] < count) push(top.at, next[top.at]);
  }
  return static_cast<std::size_t>(std::remove(symbols, symbols + count, kGone) - symbols);
}

void Merges::describe(std::string& out) const {
  std::vector<std::pair<Merge, std::uint64_t>> list;
  list.reserve(merges_.size());
  for (const auto& [key, merge] : merges_) list.emplace_back(merge, key);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first.rank < b.first.rank; });
  for (const auto& [merge, key] : list) out += cat("merge ", key, " ", merge.id, "\n");
}

}  // namespace bascule::ref
