#include <bascule/trainer_ref/chat/chat_template.h>

#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include <bascule/trainer_ref/chat/evaluator.h>
#include <bascule/trainer_ref/chat/lexer.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/parser.h>
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/model/special_tokens.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = ChatTemplate::Json;

constexpr std::uint64_t kMaxTemplateBytes = 1u << 20;
constexpr const char* kMore = "additional_chat_templates";

absl::StatusOr<jinja::Block> parse_block(std::string_view text, std::string_view where) {
  if (text.size() > kMaxTemplateBytes) {
    return invalid_argument(where, ": expected at most ", kMaxTemplateBytes, " bytes, found ", text.size());
  }
  auto tokens = jinja::tokenize(text);
  if (!tokens.ok()) return annotate(tokens.status(), where);
  auto block = jinja::parse(*std::move(tokens));
  return block.ok() ? std::move(block) : annotate(block.status(), where);
}

// Reasoning in messages has had several names; transformers sets the two that templates read.
Json with_reasoning(const Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    Json both = Json::object();
    both["thinking"] = *found;
    for (const auto& [key, value] : message.items()) both[key] = value;
    both["reasoning_content"] = *found;
    return both;
  }
  return message;
}

struct Texts {
  std::optional<std::string> plain, with_tools;
};

// `chat_template` of tokenizer_config.json: one text, or a list of {name, template}.
absl::StatusOr<Texts> texts_of(const nlohmann::json& config, std::string_view where) {
  const auto given = config.find("chat_template");
  Texts texts;
  if (given == config.end() || given->is_null()) return texts;
  if (given->is_string()) {
    texts.plain = given->get<std::string>();
    return texts;
  }
  if (!given->is_array()) return invalid_argument(where, ": chat_template: expected a text or a list of templates");
  for (const nlohmann::json& item : *given) {
    if (!item.is_object() || !item.value("name", nlohmann::json()).is_string() ||
        !item.value("template", nlohmann::json()).is_string()) {
      return invalid_argument(where, ": chat_template: expected objects with the texts name and template");
    }
    if (item["name"] == "default") texts.plain = item["template"].get<std::string>();
    if (item["name"] == "tool_use") texts.with_tools = item["template"].get<std::string>();
  }
  if (texts.plain || texts.with_tools) return texts;
  return invalid_argument(where, ": chat_template: expected a template with the name default, found none");
}

// Returns the file's text, or nullopt if there is no such file.
absl::StatusOr<std::optional<std::string>> read_if_there(const std::filesystem::path& path) {
  auto text = read_file(path, kMaxTemplateBytes);
  if (text.ok()) return std::optional<std::string>(*std::move(text));
  if (text.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
  return text.status();
}

// Templates in separate files: chat_template.jinja and the folder additional_chat_templates, whose default replaces it.
// As in transformers, any such file replaces all of tokenizer_config.json. Returns nullopt if there is none.
absl::StatusOr<std::optional<Texts>> texts_in(const std::filesystem::path& folder) {
  Texts texts;
  BASCULE_ASSIGN(texts.plain, read_if_there(folder / "chat_template.jinja"));
  BASCULE_ASSIGN(std::optional<std::string> other_default, read_if_there(folder / kMore / "default.jinja"));
  BASCULE_ASSIGN(texts.with_tools, read_if_there(folder / kMore / "tool_use.jinja"));
  if (other_default) texts.plain = std::move(other_default);
  bool any = texts.plain || texts.with_tools;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder / kMore, error), end; !any && !error && each != end;
       each.increment(error))
    any = each->path().extension() == ".jinja";
  return any ? std::optional(std::move(texts)) : std::nullopt;
}

}  // namespace

struct ChatTemplate::Data {
  std::string where = "chat template";
  std::optional<jinja::Block> plain;
  std::optional<jinja::Block> with_tools;  // rendered instead if tools are given; one of the two is there
  Json tokens = Json::object();
  jinja::Budget budget;
};

absl::StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view text, ChatTemplateOptions options) {
  auto data = std::make_shared<Data>();
  data->budget = {options.max_bytes, options.max_steps, std::move(options.now)};
  BASCULE_ASSIGN(data->plain, parse_block(text, data->where));
  return ChatTemplate(std::move(data));
}

absl::StatusOr<ChatTemplate> ChatTemplate::read(const std::filesystem::path& folder, ChatTemplateOptions options) {
  auto data = std::make_shared<Data>();
  data->budget = {options.max_bytes, options.max_steps, std::move(options.now)};
  const std::filesystem::path config_path = folder / "tokenizer_config.json", file = folder / "chat_template.jinja";
  auto config = read_json_object(config_path);
  if (!config.ok() && config.status().code() != absl::StatusCode::kNotFound) return config.status();
  Texts texts;
  if (config.ok()) {
    BASCULE_ASSIGN(texts, texts_of(*config, config_path.string()));
    data->where = cat(config_path.string(), ": chat_template");
  }
  BASCULE_ASSIGN(const std::optional<Texts> of_files, texts_in(folder));
  if (of_files) {
    texts = *of_files;
    data->where = (texts.plain ? file : folder / kMore).string();
  }
  if (!texts.plain && !texts.with_tools) {
    return absl::NotFoundError(
        cat(folder.string(), " has no chat template: ",
            of_files ? "additional_chat_templates has neither default.jinja nor tool_use.jinja, but with this folder "
                       "transformers ignores tokenizer_config.json; add chat_template.jinja"
                     : "neither chat_template.jinja nor the key chat_template in tokenizer_config.json"));
  }
  BASCULE_ASSIGN(const auto tokens, read_special_tokens(folder));
  for (const auto& [name, text] : tokens) data->tokens[name] = text;
  if (texts.plain) {
    BASCULE_ASSIGN(data->plain, parse_block(*texts.plain, data->where));
  }
  if (texts.with_tools) {
    BASCULE_ASSIGN(data->with_tools, parse_block(*texts.with_tools, cat(data->where, " (tool_use)")));
  }
  return ChatTemplate(std::move(data));
}

absl::StatusOr<std::string> ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                                 const Json& variables) const {
  if (!messages.is_array()) return invalid_argument("messages: expected a list, found ", messages.type_name());
  if (!tools.is_array() && !tools.is_null()) {
    return invalid_argument("tools: expected a list or null, found ", tools.type_name());
  }
  if (!variables.is_object()) return invalid_argument("variables: expected an object, found ", variables.type_name());
  Json all = Json::object();
  all["messages"] = Json::array();
  for (const Json& message : messages) {
    if (!message.is_object()) return invalid_argument("messages: expected objects, found ", message.type_name());
    all["messages"].push_back(with_reasoning(message));
  }
  all["tools"] = tools;
  all["add_generation_prompt"] = add_generation_prompt;
  all["documents"] = nullptr;
  for (const auto& [name, value] : data_->tokens.items()) all[name] = value;
  for (const auto& [name, value] : variables.items()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
      return invalid_argument("variables: '", name, "' has its own argument");
    }
    all[name] = value;
  }
  BASCULE_ASSIGN(const jinja::Value values, jinja::to_value(all));

  jinja::Machine machine(data_->budget);
  const std::optional<jinja::Block>& block = data_->with_tools && !tools.is_null() ? data_->with_tools : data_->plain;
  if (!block)
    return invalid_argument(data_->where, ": the checkpoint has a template only for conversations with tools");
  auto text = jinja::Evaluator(machine, *block, *values.dict()).render();
  if (!text.ok()) return annotate(text.status(), data_->where);
  return text;
}

}  // namespace bascule::ref
