// Files of problems: a JSON object a line. A line's prompt is, whichever comes first,
//
//   the prompt column        text; or a list of messages, or of token ids, as below
//   "messages"               [{"role": "user", "content": "…"}, …], for a chat template
//   "question"               text: GSM8K's layout, whose answer is what stands behind the last "####" of its rationale
//
// where "prompt_token_ids", a list of token ids, may stand beside a text or in its place: these are what engines are
// sent. The answer is the answer column, text or a number. All other columns are kept for reward functions.
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

// The problems of `file`, in its order. Empty lines are skipped. INVALID_ARGUMENT names the file, and the line that
// holds no such object.
absl::StatusOr<std::vector<Problem>> read_problems(const std::filesystem::path& file, const DataColumns& columns);

}  // namespace bascule::ref
