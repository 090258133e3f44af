#include <bascule/trainer_ref/model/special_tokens.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;
using Tokens = std::map<std::string, std::string>;

constexpr const char *kExtra = "extra_special_tokens", *kAdditional = "additional_special_tokens";
// In the order in which transformers adds them.
constexpr std::array<std::string_view, 7> kStandard = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

struct Defaults {
  std::string_view tokenizer_class, bos, eos, unk, pad;
};
// The special tokens that the tokenizer classes of config.h's families have by default. Other classes name all their
// special tokens in their files.
constexpr std::array<Defaults, 3> kDefaults = {
    {{"LlamaTokenizer", "<s>", "</s>", "<unk>", ""},
     {"Qwen2Tokenizer", "", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
     {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", ""}}};

// A file's object, and its keys in the order of the file, including the keys in extra_special_tokens.
struct TokenFile {
  json object = json::object();
  std::vector<std::string> keys;
};

// A missing file is an empty object.
absl::StatusOr<json> read_if_there(const std::filesystem::path& path) {
  absl::StatusOr<json> object = read_json_object(path);
  if (absl::IsNotFound(object.status())) return json::object();
  return object;
}

absl::StatusOr<TokenFile> read_token_file(const std::filesystem::path& path) {
  TokenFile file;
  BASCULE_ASSIGN(file.object, read_if_there(path));
  if (file.object.empty()) return file;
  BASCULE_ASSIGN(const std::string text, read_file(path, kMaxJsonFileBytes));
  const auto note_keys = [&file, within = std::string()](int depth, json::parse_event_t event, json& key) mutable {
    if (event != json::parse_event_t::key) return true;
    if (depth == 1) within = key.get<std::string>();
    if (depth == 1 || (depth == 2 && within == kExtra)) file.keys.push_back(key.get<std::string>());
    return depth <= 1 || within == kExtra;  // the order of other keys does not matter
  };
  // The file's text was checked above; if it has changed since, some keys are missing.
  const json ignored = json::parse(text, note_keys, /*allow_exceptions=*/false);
  return file;
}

std::string_view content_of(const json& token) {
  if (token.is_string()) return token.get_ref<const std::string&>();
  if (!token.is_object()) return "";
  const auto content = token.find("content");
  if (content == token.end() || !content->is_string()) return "";
  return content->get_ref<const std::string&>();
}

// The token as transformers' AddedToken: a text is special; of an object, `special` decides if it does not say.
json added_token(const json& token, bool special) {
  json added = token.is_object() ? token : json{{"content", token}, {"special", true}};
  added.erase("__type");
  if (!added.contains("special")) added["special"] = special;
  if (!added.contains("normalized")) added["normalized"] = added["special"] != true;
  return added;
}

// Collects what the files name; later values replace earlier ones, but keep their place.
class Collection {
 public:
  void add(std::string_view name, const json& value, bool special) {
    auto found = std::ranges::find(tokens_.named, name, &std::pair<std::string, json>::first);
    if (value.is_null() && found != tokens_.named.end()) tokens_.named.erase(found);
    if (!value.is_string() && content_of(value).empty()) return;
    if (found == tokens_.named.end()) found = tokens_.named.emplace(found, name, json());
    found->second = added_token(value, special);
    found->second["special"] = true;
  }
  void add_unnamed(const json& list, bool special) {
    for (const json& value : list)
      if (!content_of(value).empty()) tokens_.unnamed.push_back(added_token(value, special));
  }
  SpecialTokens take() { return std::move(tokens_); }

 private:
  SpecialTokens tokens_;
};

// The default of a class for a standard name; null if it has none.
json default_of(std::string_view tokenizer_class, std::string_view name) {
  const auto* const each = std::ranges::find(kDefaults, tokenizer_class, &Defaults::tokenizer_class);
  if (each == kDefaults.end()) return nullptr;
  const std::string_view token = name == "bos_token"   ? each->bos
                                 : name == "eos_token" ? each->eos
                                 : name == "unk_token" ? each->unk
                                 : name == "pad_token" ? each->pad
                                                       : "";
  return token.empty() ? json() : json(token);
}

bool is_standard(std::string_view name) { return std::ranges::find(kStandard, name) != kStandard.end(); }

// The names that only this model has, as image_token.
void add_own_names(const TokenFile& file, bool special, Collection& tokens) {
  for (const std::string& key : file.keys)
    if (const auto value = file.object.find(key);
        value != file.object.end() && key.ends_with("_token") && !is_standard(key))
      tokens.add(key, *value, special);
}

const json& under(const json& object, const char* key) {
  static const auto* const nothing = new json();
  const auto found = object.find(key);
  return found == object.end() ? *nothing : *found;
}

void add_extra_names(const TokenFile& file, bool special, Collection& tokens) {
  const json& extra = under(file.object, kExtra);
  if (!extra.is_object()) return;
  for (const std::string& key : file.keys)
    if (const auto value = extra.find(key); value != extra.end()) tokens.add(key, *value, special);
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
      if (content_of(each) == token && each.value("id", json()).is_number_integer())
        return each["id"].get<std::int64_t>();
  const json::json_pointer place("/model/vocab");
  if (!tokenizer.contains(place) || !tokenizer[place].is_object()) return std::nullopt;
  const auto id = tokenizer[place].find(token);
  return id != tokenizer[place].end() && id->is_number_integer() ? std::optional(id->get<std::int64_t>())
                                                                 : std::nullopt;
}

}  // namespace

absl::StatusOr<SpecialTokens> read_all_special_tokens(const std::filesystem::path& folder) {
  BASCULE_ASSIGN(const TokenFile config, read_token_file(folder / "tokenizer_config.json"));
  TokenFile map;
  if (!config.object.contains("added_tokens_decoder")) {
    BASCULE_ASSIGN(map, read_token_file(folder / "special_tokens_map.json"));
  }
  BASCULE_ASSIGN(const std::string type, tokenizer_class(folder, config.object));
  Collection tokens;
  for (const std::string_view name : kStandard) {
    const std::string key(name);
    tokens.add(key, default_of(type, name), true);
    if (config.object.contains(key)) tokens.add(key, config.object[key], false);
    if (map.object.contains(key)) tokens.add(key, map.object[key], true);
  }
  // Of the model's own names, tokenizer_config.json decides.
  add_own_names(map, true, tokens);
  add_own_names(config, false, tokens);
  add_extra_names(config, false, tokens);
  add_extra_names(map, true, tokens);
  // The older key counts if the newer one is empty.
  const json &extra = under(config.object, kExtra), &older = under(config.object, kAdditional),
             &of_map = under(map.object, kExtra);
  const json& of_config = extra.empty() ? older : extra;
  if (of_config.is_array()) tokens.add_unnamed(of_config, false);
  if (of_map.is_array()) tokens.add_unnamed(of_map, true);
  const bool none = !of_config.is_array() && !of_map.is_array();
  if (none && under(map.object, kAdditional).is_array()) tokens.add_unnamed(under(map.object, kAdditional), true);
  return tokens.take();
}

absl::StatusOr<Tokens> read_special_tokens(const std::filesystem::path& folder) {
  BASCULE_ASSIGN(const SpecialTokens all, read_all_special_tokens(folder));
  Tokens tokens;
  for (const auto& [name, token] : all.named) tokens[name] = content_of(token);
  return tokens;
}

std::optional<std::int64_t> read_end_token(const std::filesystem::path& folder) {
  const absl::StatusOr<Tokens> tokens = read_special_tokens(folder);
  if (!tokens.ok() || !tokens->contains("eos_token")) return std::nullopt;
  const std::string& end = tokens->at("eos_token");
  const absl::StatusOr<json> config = read_if_there(folder / "tokenizer_config.json");
  if (config.ok() && config->contains("added_tokens_decoder"))
    for (const auto& [id, token] : config->at("added_tokens_decoder").items())
      if (content_of(token) == end) return number(id);
  const absl::StatusOr<json> tokenizer = read_if_there(folder / "tokenizer.json");
  return tokenizer.ok() ? id_in(*tokenizer, end) : std::nullopt;
}

}  // namespace bascule::ref
