// What engines are asked for a problem: its token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/grpo/rollout.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

// The problem's own token ids, else those of its text. INVALID_ARGUMENT: the tokenizer cannot write the text, or the
// problem has messages alone.
absl::StatusOr<std::vector<std::int64_t>> prompt_tokens(const Problem& problem, const Tokenizer& tokenizer);

// OK where every problem has a prompt of token ids below `vocab_size`: what is wrong is found before a run, and not in
// the middle of it. INVALID_ARGUMENT shows the prompt.
absl::Status check_prompts(std::span<const Problem> problems, const Tokenizer& tokenizer, std::int64_t vocab_size);

// Takes the problems with prompts of more than `longest` tokens out, and returns those prompts as shown_prompt() does.
std::vector<std::string> drop_long(std::vector<Problem>& problems, const Tokenizer& tokenizer, std::int64_t longest);

// The prompt for people to read: text, or messages or token ids as JSON.
std::string shown_prompt(const Problem& problem);

}  // namespace bascule::ref
