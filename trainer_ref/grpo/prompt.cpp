#include <bascule/trainer_ref/grpo/prompt.h>

#include <algorithm>

#include <bascule/transport/text.h>

namespace bascule::ref {

absl::StatusOr<std::vector<std::int64_t>> prompt_tokens(const Problem& problem, const Tokenizer& tokenizer) {
  if (!problem.prompt_token_ids.empty()) return problem.prompt_token_ids;
  if (!problem.messages.is_null())
    return invalid_argument("expected a text or token ids, found messages; write them as a text by the model's chat ",
                            "template, and give that as the prompt");
  return tokenizer.encode(problem.prompt, /*add_special_tokens=*/true);
}

absl::Status check_prompts(std::span<const Problem> problems, const Tokenizer& tokenizer, std::int64_t vocab_size) {
  for (const Problem& problem : problems) {
    const absl::StatusOr<std::vector<std::int64_t>> tokens = prompt_tokens(problem, tokenizer);
    const std::string shown = shown_prompt(problem);
    if (!tokens.ok()) return annotate(tokens.status(), cat("prompt ", nlohmann::json(shown).dump()));
    const auto beyond = std::find_if(tokens->begin(), tokens->end(), [&](std::int64_t id) { return id >= vocab_size; });
    if (beyond != tokens->end())
      return invalid_argument("prompt ", shown.substr(0, 200), ": expected token ids below ", vocab_size,
                              ", the model's vocabulary, found ", *beyond);
  }
  return absl::OkStatus();
}

std::vector<std::string> drop_long(std::vector<Problem>& problems, const Tokenizer& tokenizer, std::int64_t longest) {
  std::vector<std::string> dropped;
  std::erase_if(problems, [&](const Problem& problem) {
    const auto tokens = prompt_tokens(problem, tokenizer);
    const bool fits = !tokens.ok() || static_cast<std::int64_t>(tokens->size()) <= longest;
    if (!fits) dropped.push_back(shown_prompt(problem));
    return !fits;
  });
  return dropped;
}

std::string shown_prompt(const Problem& problem) {
  if (!problem.prompt.empty()) return problem.prompt;
  return problem.messages.is_null() ? nlohmann::json(problem.prompt_token_ids).dump() : problem.messages.dump();
}

}  // namespace bascule::ref
