#include <bascule/trainer_ref/model/special_tokens.h>

#include <array>
#include <charconv>
#include <string_view>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using Tokens = std::map<std::string, std::string>;

struct Defaults {
  std::string_view tokenizer_class, bos, eos, unk, pad;
};
// The special tokens that the tokenizer classes of config.h's families have by default. Other classes name all their
// special tokens in their files.
constexpr std::array<Defaults, 3> kDefaults = {
    {{"LlamaTokenizer", "<s>", "</s>", "<unk>", ""},
     {"Qwen2Tokenizer", "", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
     {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", ""}}};

// A missing file is an empty object.
absl::StatusOr<json> read_if_there(const std::filesystem::path& path) {
  absl::StatusOr<json> object = read_json_object(path);
  if (absl::IsNotFound(object.status())) return json::object();
  return object;
}

// A special token: a text, or an object with its `content`.
std::optional<std::string> text_of(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (!token.is_object()) return std::nullopt;
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? std::optional(content->get<std::string>()) : std::nullopt;
}

void add(const json& object, Tokens& tokens) {
  for (const auto& [key, value] : object.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_null()) tokens.erase(key);
    if (const std::optional<std::string> text = text_of(value)) tokens[key] = *text;
  }
}

void add_defaults(std::string_view tokenizer_class, Tokens& tokens) {
  for (const Defaults& each : kDefaults) {
    if (each.tokenizer_class != tokenizer_class) continue;
    tokens = {{"bos_token", std::string(each.bos)},
              {"eos_token", std::string(each.eos)},
              {"unk_token", std::string(each.unk)},
              {"pad_token", std::string(each.pad)}};
    std::erase_if(tokens, [](const auto& token) { return token.second.empty(); });
  }
}

std::string text_under(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The class that transformers' AutoTokenizer chooses, without "Fast"; empty for one without defaults. The files name a
// class, but for some model types AutoTokenizer chooses another, and it loads no byte-level file as LlamaTokenizer.
absl::StatusOr<std::string> tokenizer_class(const std::filesystem::path& folder, const json& tokenizer_config) {
  BASCULE_ASSIGN(const json config, read_if_there(folder / "config.json"));
  std::string named = text_under(tokenizer_config, "tokenizer_class");
  if (named.empty()) named = text_under(config, "tokenizer_class");
  if (named.ends_with("Fast")) named.resize(named.size() - 4);
  const std::string type = text_under(config, "model_type");
  if (type == "mistral") return "";
  if (type == "qwen2" || (type == "qwen3" && named.empty())) return "Qwen2Tokenizer";
  if (named != "LlamaTokenizer") return named;
  const absl::StatusOr<std::string> file = read_file(folder / "tokenizer.json", kMaxJsonFileBytes);
  return file.ok() && file->find("\"ByteLevel\"") != std::string::npos ? "" : named;
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// From tokenizer.json: added tokens, then the vocabulary.
std::optional<std::int64_t> id_in(const json& tokenizer, const std::string& token) {
  if (const auto added = tokenizer.find("added_tokens"); added != tokenizer.end() && added->is_array())
    for (const json& each : *added)
      if (text_of(each) == token && each.value("id", json()).is_number_integer()) return each["id"].get<std::int64_t>();
  const json::json_pointer place("/model/vocab");
  if (!tokenizer.contains(place) || !tokenizer[place].is_object()) return std::nullopt;
  const auto id = tokenizer[place].find(token);
  return id != tokenizer[place].end() && id->is_number_integer() ? std::optional(id->get<std::int64_t>())
                                                                 : std::nullopt;
}

}  // namespace

absl::StatusOr<Tokens> read_special_tokens(const std::filesystem::path& folder) {
  BASCULE_ASSIGN(const json config, read_if_there(folder / "tokenizer_config.json"));
  BASCULE_ASSIGN(const std::string type, tokenizer_class(folder, config));
  Tokens tokens;
  add_defaults(type, tokens);
  add(config, tokens);
  if (config.contains("added_tokens_decoder")) return tokens;
  BASCULE_ASSIGN(const json map, read_if_there(folder / "special_tokens_map.json"));
  add(map, tokens);
  return tokens;
}

std::optional<std::int64_t> read_end_token(const std::filesystem::path& folder) {
  const absl::StatusOr<Tokens> tokens = read_special_tokens(folder);
  if (!tokens.ok() || !tokens->contains("eos_token")) return std::nullopt;
  const std::string& end = tokens->at("eos_token");
  const absl::StatusOr<json> config = read_if_there(folder / "tokenizer_config.json");
  if (config.ok() && config->contains("added_tokens_decoder"))
    for (const auto& [id, token] : config->at("added_tokens_decoder").items())
      if (text_of(token) == end) return number(id);
  const absl::StatusOr<json> tokenizer = read_if_there(folder / "tokenizer.json");
  return tokenizer.ok() ? id_in(*tokenizer, end) : std::nullopt;
}

}  // namespace bascule::ref
