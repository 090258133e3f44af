// Chat templates of checkpoints: a conversation to the text that the model was trained on.
//
// Checkpoints bring them as Jinja. This is a small interpreter of what real ones use, with the results of Jinja2 as
// transformers' apply_chat_template runs it, byte for byte (docs/guide/chat-templates.md). It is written here because
// no library of Debian 12 does it: there is no package of jinja2cpp, inja or minja; and inja is another language,
// without macros, namespaces, `is` tests, and whitespace as Jinja2 controls it.
//
// A template is part of a checkpoint, and may be hostile: time, memory and recursion are bounded, and no template
// reaches anything but what render() is given and the clock.
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
  std::uint64_t max_bytes = 16u << 20;   // of the rendered text, and of every text on the way
  std::uint64_t max_steps = 10'000'000;  // nodes evaluated, items visited, 64 bytes copied: about a second
  std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;  // for strftime_now
};

// Immutable and cheap to copy; any thread may call it.
class ChatTemplate {
 public:
  using Json = nlohmann::ordered_json;  // the order of keys shows in the text

  // INVALID_ARGUMENT: not Jinja. UNIMPLEMENTED names the filter, test or tag that is not known here. Both name the
  // line.
  static absl::StatusOr<ChatTemplate> parse(std::string_view text, ChatTemplateOptions options = {});

  // The template of a checkpoint: `folder`/chat_template.jinja, else `chat_template` of tokenizer_config.json; and the
  // one for tools, where there are two. Variables such as bos_token are those of tokenizer_config.json. NOT_FOUND: the
  // checkpoint has no template.
  static absl::StatusOr<ChatTemplate> read(const std::filesystem::path& folder, ChatTemplateOptions options = {});

  // The text of a conversation. `messages`: a list of objects. `tools`: a list of JSON schemas, or null.
  // `add_generation_prompt`: the text ends where the model's answer begins. `variables`: an object of further
  // variables, such as enable_thinking or documents; they come before those of the tokenizer.
  //
  // As in transformers, a message's `reasoning_content`, `thinking` or `reasoning` is found under the first two names.
  //
  // INVALID_ARGUMENT: the template refuses the conversation (raise_exception), or it fails where Jinja2 fails.
  // UNIMPLEMENTED: it comes to something that is not known here. RESOURCE_EXHAUSTED: it takes too long, or makes too
  // much.
  absl::StatusOr<std::string> render(const Json& messages, const Json& tools = nullptr,
                                     bool add_generation_prompt = true, const Json& variables = Json::object()) const;

 private:
  struct Data;
  explicit ChatTemplate(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

}  // namespace bascule::ref
