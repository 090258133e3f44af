#include <bascule/trainer_ref/grpo/data/prompt.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

bool is_chat(const ChatOptions& options, const Problem& problem) {
  return problem.prompt_token_ids.empty() && (options.texts || !problem.messages.is_null());
}

ChatTemplate::Json messages_of(const ChatOptions& options, const Problem& problem) {
  if (!problem.messages.is_null()) return problem.messages;
  ChatTemplate::Json messages = ChatTemplate::Json::array();
  if (!options.system_prompt.empty()) messages.push_back({{"role", "system"}, {"content", options.system_prompt}});
  messages.push_back({{"role", "user"}, {"content", problem.prompt}});
  return messages;
}

}  // namespace

PromptWriter::PromptWriter(Tokenizer tokenizer, ChatTemplate chat, ChatOptions options)
    : tokenizer_(std::move(tokenizer)),
      chat_(std::make_shared<const Chat>(Chat{std::move(chat), std::move(options)})) {}

absl::StatusOr<std::vector<std::int64_t>> PromptWriter::tokens_of(const Problem& problem) const {
  if (!problem.prompt_token_ids.empty()) return problem.prompt_token_ids;
  if (chat_ && is_chat(chat_->options, problem)) {
    BASCULE_ASSIGN(const std::string text,
                   chat_->text_of.render(messages_of(chat_->options, problem), nullptr,
                                         /*add_generation_prompt=*/true, chat_->options.variables));
    return tokenizer_.encode(text);  // the template writes the special tokens itself
  }
  if (!problem.messages.is_null())
    return invalid_argument("expected a text or token ids, found messages, and no chat template to write them");
  return tokenizer_.encode(problem.prompt, /*add_special_tokens=*/true);
}

bool needs_template(const ChatOptions& options, const Task& task) {
  const auto any = [&](const std::vector<Problem>& problems) {
    return std::any_of(problems.begin(), problems.end(), [&](const Problem& each) { return is_chat(options, each); });
  };
  return any(task.train) || any(task.held_out);
}

absl::Status check_prompts(std::span<const Problem> problems, const PromptWriter& prompts, std::int64_t vocab_size,
                           const LookAtPrompt& look) {
  for (const Problem& problem : problems) {
    const absl::StatusOr<std::vector<std::int64_t>> tokens = prompts.tokens_of(problem);
    const std::string shown = shown_prompt(problem);
    if (!tokens.ok()) return annotate(tokens.status(), cat("prompt ", nlohmann::json(shown).dump()));
    if (tokens->empty()) return invalid_argument("prompt ", shown.substr(0, 200), ": expected a token, found none");
    const auto beyond = std::find_if(tokens->begin(), tokens->end(), [&](std::int64_t id) { return id >= vocab_size; });
    if (beyond != tokens->end())
      return invalid_argument("prompt ", shown.substr(0, 200), ": expected token ids below ", vocab_size,
                              ", the model's vocabulary, found ", *beyond);
    BASCULE_TRY(
        annotate(look(problem, static_cast<std::int64_t>(tokens->size())), cat("prompt ", shown.substr(0, 200))));
  }
  return absl::OkStatus();
}

std::vector<std::string> drop_long(std::vector<Problem>& problems, const PromptWriter& prompts, std::int64_t longest) {
  std::vector<std::string> dropped;
  std::erase_if(problems, [&](const Problem& problem) {
    const auto tokens = prompts.tokens_of(problem);
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
