// The flags of conversations: --chat, --system-prompt, --chat-template-kwargs.
#include <string>

#include "absl/flags/flag.h"
#include <bascule/trainer_ref/grpo/options/flag_parts.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/json.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

ABSL_FLAG(bool, chat, false,
          "Make each problem's text a user message, from which the model's chat template writes the prompt; problems "
          "with \"messages\" always use the template (docs/guide/data-and-rewards.md)");
ABSL_FLAG(std::string, system_prompt, "", "With --chat: the system message before it");
ABSL_FLAG(std::string, chat_template_kwargs, "",
          "A JSON object of variables for the chat template, such as {\"enable_thinking\": false}");

namespace bascule::ref {
namespace {

absl::StatusOr<ChatTemplate::Json> read_variables(const std::string& text) {
  if (text.empty()) return ChatTemplate::Json::object();
  BASCULE_ASSIGN(const nlohmann::json json, parse_json(text, "the value"));
  if (!json.is_object()) return invalid_argument("expected a JSON object, found a JSON ", json.type_name());
  for (const char* name : {"messages", "tools", "add_generation_prompt"})
    if (json.contains(name)) return invalid_argument("\"", name, "\" is set by the trainer; leave it out");
  ChatTemplate::Json variables = parse_ordered(text);
  if (const ChatTemplate::Json* big = find_big_integer(variables))
    return invalid_argument("expected integers of at most 64 bits, found ", digits_of(*big), "; write it as a text");
  return variables;
}

}  // namespace

absl::StatusOr<ChatOptions> parse_chat_flags() {
  const std::string variables = absl::GetFlag(FLAGS_chat_template_kwargs);
  ChatOptions chat{.texts = absl::GetFlag(FLAGS_chat), .system_prompt = absl::GetFlag(FLAGS_system_prompt)};
  FlagChecks checks;
  checks.that(chat.texts || chat.system_prompt.empty(), "system-prompt", chat.system_prompt,
              "add --chat, or write it as a message of role system into --data");
  BASCULE_TRY(checks.status());
  absl::StatusOr<ChatTemplate::Json> read = read_variables(variables);
  BASCULE_TRY(of_flag(read.status(), "chat-template-kwargs", variables,
                      "give a JSON object, as --chat-template-kwargs={\"enable_thinking\": false}"));
  chat.variables = *std::move(read);
  return chat;
}

}  // namespace bascule::ref
