// One step of the engine: what the scheduler hands to the runner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/schedule/sequence.h>

namespace bascule::ref {

// A request to compute tokens[begin, begin + count) of one sequence, whose blocks have room for them.
struct Row {
  Sequence* sequence = nullptr;
  std::size_t begin = 0;
  std::size_t count = 0;
  // Set if `tokens` does not have this row's token yet: the index of the row that draws it, in the previous step, which
  // still runs. If that token ends the sequence, `sequence` becomes null, and the result of this row is not used.
  std::optional<std::size_t> drawn_by = {};

  std::size_t end() const { return begin + count; }  // tokens that the row's last token attends to
  bool samples() const { return drawn_by || end() == sequence->tokens.size(); }
  // For a row that samples: how many tokens its sequence has generated before.
  std::uint64_t draw() const { return end() - sequence->prompt_tokens; }
  // Positions [first, second) whose logits say how likely the prompt's next token was, if that is wanted and not known
  // yet.
  std::pair<std::size_t, std::size_t> scored() const;
};

// The result of a row.
struct RowOutput {
  std::vector<Sample> samples = {};  // if it samples, one for the sequence and one for each sibling
  std::vector<Sample> prompt = {};   // one for each position that is scored
  bool sound = true;                 // false: a logit is NaN, and something is missing
};

struct Step {
  std::vector<std::pair<BlockId, BlockId>> copies;  // (from, to), all read before any is written, before the rows
  std::vector<Row> rows;

  bool empty() const { return rows.empty(); }
};

// Splits `rows` into groups, and returns each as indices into `rows`. A group is padded to a rectangle. Padding at most
// doubles its counts and contexts, so that one long prompt does not blow up a batch of single tokens.
std::vector<std::vector<std::size_t>> padded_groups(std::span<const Row> rows);

}  // namespace bascule::ref
