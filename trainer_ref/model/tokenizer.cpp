#include <bascule/trainer_ref/model/tokenizer.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include <bascule/trainer_ref/model/json.h>
#include <bascule/transport/text.h>

namespace bascule::ref {
namespace {

using Json = nlohmann::json;
using Vocabulary = std::map<std::string, std::int64_t, std::less<>>;

constexpr std::string_view kByIds = " is not read here; the model can be served by token ids";

// The text's first code point; empty where its bytes are no UTF-8.
std::string_view first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xE ? 3 : lead >> 3 == 0x1E ? 4 : 0;
  if (length == 0 || length > text.size()) return {};
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  const std::string_view character = text.substr(0, length);
  return std::all_of(character.begin() + 1, character.end(), continues) ? character : std::string_view();
}

// The "type" of the part under `key`; empty where there is none.
std::string type_of(const Json& file, const char* key) {
  const auto part = file.find(key);
  if (part == file.end() || part->is_null()) return "";
  return part->is_object() ? part->value("type", Json("unnamed")).dump() : part->dump();
}

// A token's id: not negative, and far from overflow.
bool is_id(const Json& value) { return value.is_number_unsigned() && value < (std::int64_t{1} << 31); }

}  // namespace

struct Tokenizer::Data {
  std::string where;
  Vocabulary vocabulary;
  Vocabulary added;                                     // found in a text before anything else is
  std::unordered_map<std::int64_t, std::string> texts;  // by id; not those of special tokens
  bool by_character = false;                            // else a text between added tokens is one token
  bool spaced = false;                                  // decoded tokens are joined by spaces

  absl::Status unread(std::string_view part) const { return unimplemented(where, ": ", part, kByIds); }
  absl::Status read_parts(const Json& file);
  absl::Status read_model(const Json& file);
  absl::Status read_added_tokens(const Json& file);
  absl::Status encode_plain(std::string_view text, std::vector<std::int64_t>& token_ids) const;
};

absl::Status Tokenizer::Data::read_parts(const Json& file) {
  for (const char* part : {"truncation", "padding", "normalizer", "post_processor"}) {
    if (const std::string type = type_of(file, part); !type.empty()) return unread(cat(part, " ", type));
  }
  if (const std::string type = type_of(file, "pre_tokenizer"); !type.empty()) {
    static const Json each_character = {
        {"type", "Split"}, {"pattern", {{"Regex", "."}}}, {"behavior", "Isolated"}, {"invert", false}};
    if (type != "\"Split\"") return unread(cat("pre_tokenizer ", type));
    if (file.at("pre_tokenizer") != each_character) {
      return unread(cat("pre_tokenizer ", file.at("pre_tokenizer").dump(), " (only ", each_character.dump(), ")"));
    }
    by_character = true;
  }
  const std::string decoder = type_of(file, "decoder");
  if (!decoder.empty() && decoder != "\"Fuse\"") return unread(cat("decoder ", decoder));
  spaced = decoder.empty();
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::read_model(const Json& file) {
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object()) return invalid_argument(where, ": no object 'model'");
  if (type_of(file, "model") != "\"WordLevel\"") return unread(cat("model ", type_of(file, "model")));
  const auto list = model->find("vocab");
  if (list == model->end() || !list->is_object()) return invalid_argument(where, ": model: no object 'vocab'");
  if (const auto unknown = model->find("unk_token");
      unknown != model->end() && unknown->is_string() && list->contains(unknown->get<std::string>())) {
    return unread(cat("an unk_token that the vocabulary holds, ", unknown->dump(), ","));
  }
  for (const auto& [text, id] : list->items()) {
    if (!is_id(id)) return invalid_argument(where, ": vocab: '", text, "': expected an id, found ", id.dump());
    vocabulary.emplace(text, id.get<std::int64_t>());
    if (!texts.emplace(id.get<std::int64_t>(), text).second) {
      return invalid_argument(where, ": vocab: two tokens have the id ", id.dump());
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::read_added_tokens(const Json& file) {
  const auto list = file.find("added_tokens");
  if (list == file.end() || list->is_null()) return absl::OkStatus();
  if (!list->is_array()) return invalid_argument(where, ": added_tokens is not a list");
  for (const Json& token : *list) {
    const auto id = token.find("id"), content = token.find("content");
    if (!token.is_object() || id == token.end() || !is_id(*id) || content == token.end() || !content->is_string() ||
        content->get_ref<const std::string&>().empty()) {
      return invalid_argument(where, ": added_tokens: expected an id and a content, found ", token.dump());
    }
    for (const char* option : {"single_word", "lstrip", "rstrip"}) {
      if (token.value(option, Json(false)) != false) return unread(cat("an added token with ", option));
    }
    added.emplace(content->get<std::string>(), id->get<std::int64_t>());
    if (token.value("special", Json(false)) == true) {
      texts.erase(id->get<std::int64_t>());
    } else {
      texts[id->get<std::int64_t>()] = content->get<std::string>();
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::Data::encode_plain(std::string_view text, std::vector<std::int64_t>& token_ids) const {
  while (!text.empty()) {
    const std::string_view piece = by_character ? first_character(text) : text;
    if (piece.empty()) return invalid_argument("the text is not UTF-8");
    const auto found = vocabulary.find(piece);
    if (found == vocabulary.end()) {
      constexpr std::size_t kShown = 40;
      return invalid_argument("the vocabulary has no token '", piece.substr(0, kShown), "'");
    }
    token_ids.push_back(found->second);
    text.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<Tokenizer> Tokenizer::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  BASCULE_ASSIGN(const Json file, read_json_object(path));
  auto data = std::make_shared<Data>();
  data->where = path.string();
  BASCULE_TRY(data->read_parts(file));
  BASCULE_TRY(data->read_model(file));
  BASCULE_TRY(data->read_added_tokens(file));
  return Tokenizer(std::move(data));
}

absl::StatusOr<std::vector<std::int64_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> token_ids;
  while (!text.empty()) {
    // The added token that begins first; of several at one place, the longest.
    std::size_t at = text.size(), length = 0;
    std::int64_t id = 0;
    for (const auto& [content, token_id] : data_->added) {
      const std::size_t found = text.substr(0, at + content.size()).find(content);
      if (found == std::string_view::npos || (found == at && content.size() < length)) continue;
      at = found;
      length = content.size();
      id = token_id;
    }
    BASCULE_TRY(data_->encode_plain(text.substr(0, at), token_ids));
    if (length > 0) token_ids.push_back(id);
    text.remove_prefix(at + length);
  }
  return token_ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> token_ids) const {
  std::string text;
  bool first = true;
  for (const std::int64_t id : token_ids) {
    const auto found = data_->texts.find(id);
    if (found == data_->texts.end()) continue;
    if (!first && data_->spaced) text += ' ';
    first = false;
    text += found->second;
  }
  return text;
}

}  // namespace bascule::ref
