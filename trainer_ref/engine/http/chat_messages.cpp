#include <bascule/trainer_ref/engine/http/chat_messages.h>

#include <string>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/engine/http/fields.h>
#include <bascule/trainer_ref/json/ordered_json.h>
#include <bascule/transport/json.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Ordered = ChatTemplate::Json;  // the order of a tool's keys shows in the text

// The tool calls of a message, each as the object with its name and arguments: mostly the call's "function".
std::vector<Ordered*> called_functions(Ordered& message) {
  std::vector<Ordered*> functions;
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return functions;
  for (Ordered& call : *calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    Ordered& named = function != call.end() && function->is_object() ? *function : call;
    if (named.contains("name")) functions.push_back(&named);
  }
  return functions;
}

// Returns null if the part is not text. These are the kinds of text that OpenAI's and vLLM's clients send.
const std::string* text_in(const Ordered& part) {
  if (part.is_string()) return &part.get_ref<const std::string&>();
  const auto type = part.is_object() ? part.find("type") : part.end();
  if (!part.is_object() || type == part.end() || !type->is_string()) return nullptr;
  for (const auto& [name, key] : {std::pair("text", "text"), std::pair("input_text", "text"),
                                  std::pair("output_text", "text"), std::pair("refusal", "refusal")}) {
    if (*type != name) continue;
    const auto text = part.find(key);
    return text != part.end() && text->is_string() ? &text->get_ref<const std::string&>() : nullptr;
  }
  return nullptr;
}

// A question without content is a client's mistake. A model's turn and a tool's result may be empty.
bool may_lack_content(const Ordered& message) {
  const auto& role = message["role"].get_ref<const std::string&>();
  return role != "user" && role != "system" && role != "developer";
}

absl::Status read_content(Ordered& message, std::size_t index) {
  const auto refused = [index](const Ordered& found) {
    return invalid_argument("messages[", index, "].content: expected a text, or parts as {\"type\": \"text\", ",
                            "\"text\": \"…\"}, found ", shown(found));
  };
  const auto content = message.find("content");
  if (content == message.end()) {
    if (!may_lack_content(message)) return refused(nullptr);
    if (!message.contains("tool_calls")) message["content"] = "";
    return absl::OkStatus();
  }
  if (content->is_null() && !message.contains("tool_calls")) *content = "";
  if (content->is_string() || content->is_null()) return absl::OkStatus();
  if (!content->is_array()) return refused(*content);
  std::string joined;
  for (const Ordered& part : *content) {
    const std::string* text = text_in(part);
    if (text == nullptr) return refused(part);
    joined += cat(&part == &content->front() ? "" : "\n", *text);
  }
  *content = std::move(joined);
  return absl::OkStatus();
}

void open_arguments(Ordered& function) {
  Ordered& arguments = function["arguments"];
  if (arguments.is_null()) arguments = Ordered::object();
  if (!arguments.is_string()) return;
  const std::string text = arguments.get<std::string>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    arguments = Ordered::object();
  else if (parse_json(text, "arguments").ok())
    arguments = parse_ordered(text);
}

// Clients send back what they got, with null for each field that the answer did not have. To a template, such a key
// would be defined.
void remove_nulls(Ordered& message) {
  std::vector<std::string> removed;
  for (const auto& [key, value] : message.items()) {
    const bool no_calls = key == "tool_calls" && value.is_array() && value.empty();
    if (no_calls || (value.is_null() && key != "content")) removed.push_back(key);
  }
  for (const std::string& key : removed) message.erase(key);
}

}  // namespace

absl::Status prepare_messages(Ordered& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Ordered& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return invalid_argument("messages[", i, "]: expected an object with a role and content, found ", shown(message));
    remove_nulls(message);
    BASCULE_TRY(read_content(message, i));
    for (Ordered* function : called_functions(message)) open_arguments(*function);
  }
  return absl::OkStatus();
}

bool simplify_messages(Ordered& messages) {
  bool changed = false;
  for (Ordered& message : messages) {
    if (const auto content = message.find("content"); content == message.end() || content->is_null()) {
      message["content"] = "";
      changed = true;
    }
    for (Ordered* function : called_functions(message)) {
      Ordered& arguments = (*function)["arguments"];
      if (arguments.is_object()) continue;
      arguments = arguments.is_null() ? Ordered::object() : Ordered{{"arguments", std::move(arguments)}};
      changed = true;
    }
  }
  return changed;
}

}  // namespace bascule::ref
