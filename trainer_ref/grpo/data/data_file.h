// Files of problems: one JSON object per line. A line's prompt is the first of these columns that it has:
//
//   the prompt column        text; or a list of messages or of token ids, as below
//   "messages"               [{"role": "user", "content": "…"}, …], for a chat template
//   "question"               text, in GSM8K's layout: the answer follows the last "####" of the rationale
//
// "prompt_token_ids", a list of token ids, may accompany or replace a text; engines are then sent these ids. The answer
// is the answer column, text or a number. All other columns are kept for reward functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/data/rollout.h>

namespace bascule::ref {

struct DataColumns {
  std::string prompt = "prompt";
  std::string answer = "answer";  // empty: the problems have none, and every answer is empty
};

// Returns the problems of `file` in its order. Empty lines are skipped. INVALID_ARGUMENT names the file and the first
// line that does not have this form.
absl::StatusOr<std::vector<Problem>> read_problems(const std::filesystem::path& file, const DataColumns& columns);

}  // namespace bascule::ref
