// A problem's prompt as the token ids that engines are sent.
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
  bool texts = false;              // a prompt of text becomes a user message
  std::string system_prompt = {};  // the system message before it; empty: none
  ChatTemplate::Json variables =
      ChatTemplate::Json::object();  // more variables of the template, such as enable_thinking
};

// Writes prompts for one model. Immutable and cheap to copy; any thread may call it.
class PromptWriter {
 public:
  explicit PromptWriter(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  PromptWriter(Tokenizer tokenizer, ChatTemplate chat, ChatOptions options);

  // Returns the problem's own token ids, if it has any. Otherwise encodes its messages, as the chat template writes
  // them, up to the start of the model's answer; or else its text, with the special tokens that begin or end every
  // text. Returns INVALID_ARGUMENT if the template refuses the messages or is missing, or the text cannot be encoded.
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

// Whether any problem of `task` needs the chat template.
bool needs_template(const ChatOptions& options, const Task& task);

// Returns OK if every problem has a prompt of token ids below `vocab_size`, so that errors appear before a run and not
// in the middle of it. The text of INVALID_ARGUMENT shows the prompt. `look` gets each problem with its number of
// tokens; its error also ends the check.
using LookAtPrompt = std::function<absl::Status(const Problem& problem, std::int64_t tokens)>;
absl::Status check_prompts(
    std::span<const Problem> problems, const PromptWriter& prompts, std::int64_t vocab_size,
    const LookAtPrompt& look = [](const Problem&, std::int64_t) { return absl::OkStatus(); });

// Removes the problems with prompts of more than `longest` tokens, and returns these prompts as shown_prompt() does.
std::vector<std::string> drop_long(std::vector<Problem>& problems, const PromptWriter& prompts, std::int64_t longest);

// The prompt in readable form: text, or messages or token ids as JSON.
std::string shown_prompt(const Problem& problem);

}  // namespace bascule::ref
