#include <bascule/trainer_ref/text/further_tokens.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/model/special_tokens.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = nlohmann::json;
using ById = std::map<std::uint64_t, Json>;

// The list of added tokens while it grows.
class TokenList {
 public:
  TokenList(Json& list, const Vocabulary& vocabulary) : list_(list), vocabulary_(vocabulary) {
    for (std::size_t i = 0; i < list_.size(); ++i) note(i);
  }

  Json* find(const std::string& content) {
    const auto place = places_.find(content);
    return place == places_.end() ? nullptr : &list_[place->second];
  }
  void append(Json token) {
    list_.push_back(std::move(token));
    note(list_.size() - 1);
  }
  // With the id that Hugging Face's tokenizers give it.
  void append_unless_known(Json token) {
    const auto content = token["content"].get<std::string>();
    if (content.empty() || find(content) != nullptr) return;
    const std::optional<std::int32_t> known = vocabulary_.id_of(content);
    token["id"] = known ? static_cast<std::uint64_t>(*known) : vocabulary_.size() + beyond_;
    append(std::move(token));
  }

 private:
  void note(std::size_t place) {
    const Json& token = list_[place];
    if (!token.is_object() || !token.value("content", Json()).is_string()) return;
    const auto& content = token["content"].get_ref<const std::string&>();
    if (!content.empty() && !vocabulary_.id_of(content)) ++beyond_;
    places_.emplace(content, place);
  }

  Json& list_;
  const Vocabulary& vocabulary_;
  absl::flat_hash_map<std::string, std::size_t> places_;
  std::uint64_t beyond_ = 0;  // tokens that the model's vocabulary does not have
};

absl::StatusOr<ById> read_decoder(const Json& decoder) {
  ById tokens;
  for (const auto& [key, token] : decoder.items()) {
    std::uint64_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || !token.is_object() || !token.value("content", Json()).is_string())
      return invalid_argument("added_tokens_decoder: expected a content under each id, found ", token.dump(), " under ",
                              key);
    Json& added = tokens[id] = token;
    added["id"] = id;
    if (!added.contains("normalized")) added["normalized"] = added.value("special", Json()) != true;
  }
  return tokens;
}

// added_tokens.json: ids by text.
absl::StatusOr<ById> read_encoder(const std::filesystem::path& path, const std::set<std::string>& special) {
  const absl::StatusOr<Json> file = read_json_object(path);
  if (absl::IsNotFound(file.status())) return ById();
  BASCULE_TRY(file.status());
  ById tokens;
  for (const auto& [content, id] : file->items()) {
    if (!is_token_id(id))
      return invalid_argument(path.string(), ": expected an id for each text, found ", id.dump(), " for ", content);
    const bool is_special = special.contains(content);
    tokens[id.get<std::uint64_t>()] = {
        {"id", id}, {"content", content}, {"special", is_special}, {"normalized", !is_special}};
  }
  return tokens;
}

}  // namespace

absl::Status add_further_tokens(const std::filesystem::path& folder, const Json& tokenizer_config,
                                const Vocabulary& vocabulary, Json& added_tokens) {
  if (!added_tokens.is_null() && !added_tokens.is_array()) return absl::OkStatus();
  BASCULE_ASSIGN(const SpecialTokens special, read_all_special_tokens(folder));
  std::set<std::string> named, all;
  for (const auto& [name, token] : special.named) named.insert(token["content"].get<std::string>());
  all = named;
  for (const Json& token : special.unnamed) all.insert(token["content"].get<std::string>());
  ById by_id;
  const auto decoder = tokenizer_config.find("added_tokens_decoder");
  if (decoder == tokenizer_config.end()) {
    BASCULE_ASSIGN(by_id, read_encoder(folder / "added_tokens.json", all));
    for (Json& token : added_tokens)  // they are added once more, so that it counts what they are named
      if (token.is_object() && token.value("content", Json()).is_string() &&
          named.contains(token["content"].get<std::string>()))
        token["special"] = true;
  } else if (decoder->is_object()) {
    absl::StatusOr<ById> read = read_decoder(*decoder);
    BASCULE_TRY(annotate(read.status(), (folder / "tokenizer_config.json").string()));
    by_id = *std::move(read);
  }
  TokenList list(added_tokens, vocabulary);
  for (auto& [id, token] : by_id) {
    const auto content = token["content"].get<std::string>();
    if (named.contains(content)) token["special"] = true;
    Json* const known = list.find(content);
    if (known == nullptr) {
      list.append(std::move(token));
    } else if (decoder != tokenizer_config.end()) {
      token["id"] = known->value("id", Json());
      if (known->value("special", Json()) == true) token["special"] = true;  // once special, a token stays so
      *known = std::move(token);
    }
  }
  for (const auto& [name, token] : special.named) list.append_unless_known(token);
  for (const Json& token : special.unnamed) list.append_unless_known(token);
  return absl::OkStatus();
}

}  // namespace bascule::ref
