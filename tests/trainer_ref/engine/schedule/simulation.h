// An engine without a model: the next token is a function of all tokens before it, and the cache records for each place
// which token was written there, by which adapter. Whatever the scheduler does, the places that a row attends to must
// hold its tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/scheduler.h>

namespace bascule::ref {

inline constexpr std::int64_t kSimulatedVocabulary = 100;

// Differs by choice, as sampling does.
inline std::int64_t next_token(std::span<const std::int64_t> tokens, std::uint64_t choice) {
  std::uint64_t hash = choice + 1;
  for (const std::int64_t token : tokens) hash = (hash ^ static_cast<std::uint64_t>(token)) * 1099511628211U;
  return static_cast<std::int64_t>((hash >> 33) % kSimulatedVocabulary);
}

inline std::vector<std::int64_t> expected_completion(std::vector<std::int64_t> tokens, std::uint64_t choice,
                                                     std::int64_t count) {
  const std::size_t prompt = tokens.size();
  while (static_cast<std::int64_t>(tokens.size() - prompt) < count) tokens.push_back(next_token(tokens, choice));
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

inline std::unique_ptr<Sequence> make_sequence(RequestId request, std::vector<std::int64_t> prompt,
                                               std::int64_t max_tokens, int n = 1) {
  std::unique_ptr<Sequence> lead;
  for (int i = 0; i < n; ++i) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request;
    sequence->choice = static_cast<std::uint64_t>(i);
    sequence->max_tokens = max_tokens;
    sequence->tokens = prompt;
    sequence->prompt_tokens = prompt.size();
    if (lead) {
      lead->siblings.push_back(std::move(sequence));
    } else {
      lead = std::move(sequence);
    }
  }
  return lead;
}

class SimulatedCache {
 public:
  explicit SimulatedCache(std::size_t blocks) : places_(blocks * kBlockTokens, -1) {}

  void clear() { std::fill(places_.begin(), places_.end(), -1); }

  // The last token that `row` of the next step computes.
  std::int64_t last_token(const Row& row) const {
    return row.drawn_by ? drawn_.at(*row.drawn_by) : row.sequence->tokens[row.end() - 1];
  }

  // A prompt's token at position p + 1 has the log-probability -p - 1.
  std::vector<RowOutput> run(const Step& step) {
    const std::vector<std::int64_t> before = places_;  // all copies read before any writes
    for (const auto& [from, to] : step.copies)
      for (std::size_t i = 0; i < kBlockTokens; ++i) places_[place(to, i)] = before[place(from, i)];
    std::vector<RowOutput> outputs;
    for (const Row& row : step.rows) {
      std::vector<std::int64_t> tokens = row.sequence->tokens;
      if (row.drawn_by) tokens.push_back(drawn_.at(*row.drawn_by));
      EXPECT_LE(row.end(), tokens.size());
      const std::int64_t adapter = kSimulatedVocabulary * row.sequence->adapter;
      for (std::size_t i = row.begin; i < row.end(); ++i) at(row, i) = tokens[i] + adapter;
      EXPECT_GE(row.count, 1U);
      for (std::size_t i = 0; i < row.end(); ++i)
        EXPECT_EQ(at(row, i), tokens[i] + adapter) << "request " << row.sequence->request << ", position " << i;
      RowOutput& output = outputs.emplace_back();
      const auto [first, last] = row.scored();
      for (std::size_t p = first; p < last; ++p)
        output.prompt.push_back({tokens[p + 1], -1.0 - static_cast<double>(p)});
      if (!row.samples()) continue;
      output.samples.push_back({next_token(tokens, row.sequence->choice), -1});
      for (const auto& sibling : row.sequence->siblings)
        output.samples.push_back({next_token(tokens, sibling->choice), -1});
    }
    drawn_.clear();
    for (const RowOutput& output : outputs) drawn_.push_back(output.samples.empty() ? -1 : output.samples[0].token);
    return outputs;
  }

 private:
  static std::size_t place(BlockId block, std::size_t offset) {
    return static_cast<std::size_t>(block) * kBlockTokens + offset;
  }
  std::int64_t& at(const Row& row, std::size_t position) {
    return places_[place(row.sequence->blocks.at(position / kBlockTokens), position % kBlockTokens)];
  }

  std::vector<std::int64_t> places_;
  std::vector<std::int64_t> drawn_;  // by each row of the last step
};

}  // namespace bascule::ref
