// Chat templates of checkpoints. A template turns a conversation into text of the form that the model was trained on.
//
// Checkpoints bring them as Jinja. This is a small interpreter of what real templates use. It renders what Jinja2
// renders under transformers' apply_chat_template, byte for byte (docs/guide/chat-templates.md). It exists because
// Debian 12 packages no library for Jinja: no jinja2cpp, inja or minja. (inja is a different language anyway, without
// macros, namespaces, `is` tests, or Jinja2's whitespace control.)
//
// A template is part of a checkpoint and may be hostile: time, memory and recursion are bounded, and a template reaches
// only the clock and what render() is given.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct ChatTemplateOptions {
  std::uint64_t max_bytes = 16u << 20;   // of the rendered text, and of every intermediate text
  std::uint64_t max_steps = 10'000'000;  // nodes evaluated, items visited, 64 bytes copied: about a second
  std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;  // for strftime_now
};

// Immutable and cheap to copy; any thread may call it.
class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;  // the order of keys shows in the text

  // Returns INVALID_ARGUMENT if it is not Jinja, UNIMPLEMENTED if it uses an unsupported filter, test or tag, which the
  // error names. Both name the line.
  static absl::StatusOr<ChatTemplate> parse(std::string_view text, ChatTemplateOptions options = {});

  // Reads a checkpoint's template: `folder`/chat_template.jinja, else `chat_template` of tokenizer_config.json. If the
  // checkpoint has a separate template for conversations with tools, that is read as well. Variables such as bos_token
  // come from read_special_tokens(). Returns NOT_FOUND if the checkpoint has no template.
  static absl::StatusOr<ChatTemplate> read(const std::filesystem::path& folder, ChatTemplateOptions options = {});

  // Renders a conversation. `messages` is a list of objects, `tools` a list of JSON schemas or null. With
  // `add_generation_prompt` the text ends where the model's answer begins. `variables` is an object of further
  // variables, such as enable_thinking or documents; they override the tokenizer's.
  //
  // If a message has `reasoning_content`, `thinking` or `reasoning`, the template finds it under the first two names,
  // as in transformers.
  //
  // Returns INVALID_ARGUMENT if the template refuses the conversation (raise_exception) or fails where Jinja2 fails,
  // UNIMPLEMENTED if it reaches something unsupported, RESOURCE_EXHAUSTED if it takes too long or makes too much.
  absl::StatusOr<std::string> render(const Json& messages, const Json& tools = nullptr,
                                     bool add_generation_prompt = true, const Json& variables = Json::object()) const;

 private:
  struct Data;
  explicit ChatTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

}  // namespace bascule::ref
