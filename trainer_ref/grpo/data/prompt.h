// What engines are asked for a problem: its token ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/chat/chat_template.h>
#include <bascule/trainer_ref/grpo/data/rollout.h>
#include <bascule/trainer_ref/grpo/data/task.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

// How problems become conversations.
struct ChatOptions {
  bool texts = false;                                           // a prompt of text is a message of the user's
  std::string system_prompt = {};                               // and this one of the system's, before it; empty: none
  ChatTemplate::Json variables = ChatTemplate::Json::object();  // further ones for the template: enable_thinking
};

// Writes prompts for one model. Immutable and cheap to copy; any thread may call it.
class PromptWriter {
 public:
  explicit PromptWriter(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  PromptWriter(Tokenizer tokenizer, ChatTemplate chat, ChatOptions options);

  // The problem's own token ids; else those of its messages, as the chat template writes them, up to where the model's
  // answer begins; else those of its text, with the special tokens that begin or end every text. INVALID_ARGUMENT: the
  // template refuses the messages, or there is none; the tokenizer cannot write the text.
  absl::StatusOr<std::vector<std::int64_t>> tokens_of(const Problem& problem) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  struct Chat {
    ChatTemplate text_of;
    ChatOptions options;
  };

  Tokenizer tokenizer_;
  std::shared_ptr<const Chat> chat_;  // null: no template
};

// Whether some problem of `task` is written by the chat template.
bool needs_template(const ChatOptions& options, const Task& task);

// OK where every problem has a prompt of token ids below `vocab_size`: what is wrong is found before a run, and not in
// the middle of it. INVALID_ARGUMENT shows the prompt.
// Each is shown to `look`, with its number of tokens, whose error ends the search, too.
using LookAtPrompt = std::function<absl::Status(const Problem& problem, std::int64_t tokens)>;
absl::Status check_prompts(
    std::span<const Problem> problems, const PromptWriter& prompts, std::int64_t vocab_size,
    const LookAtPrompt& look = [](const Problem&, std::int64_t) { return absl::OkStatus(); });

// Takes the problems with prompts of more than `longest` tokens out, and returns those prompts as shown_prompt() does.
std::vector<std::string> drop_long(std::vector<Problem>& problems, const PromptWriter& prompts, std::int64_t longest);

// The prompt for people to read: text, or messages or token ids as JSON.
std::string shown_prompt(const Problem& problem);

}  // namespace bascule::ref
