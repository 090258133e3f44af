#include <bascule/trainer_ref/text/vocabulary.h>

#include <algorithm>

#include <bascule/transport/status.h>

namespace bascule::ref {

bool is_token_id(const nlohmann::json& value) { return value.is_number_unsigned() && value <= kMaxTokenId; }

absl::StatusOr<Vocabulary> Vocabulary::read(const nlohmann::json& object) {
  if (!object.is_object()) return invalid_argument("model: no object 'vocab'");
  std::int64_t largest = -1;
  for (const auto& [text, id] : object.items()) {
    if (!is_token_id(id)) {
      return invalid_argument("vocab: '", text, "': expected an id, found ", id.dump(), " (ids go from 0 to ",
                              kMaxTokenId, ")");
    }
    largest = std::max(largest, id.get<std::int64_t>());
  }
  Vocabulary vocabulary;
  vocabulary.texts_.resize(static_cast<std::size_t>(largest + 1));
  std::vector<bool> taken(vocabulary.texts_.size());
  for (const auto& [text, id] : object.items()) {
    const auto at = id.get<std::size_t>();
    if (taken[at]) return invalid_argument("vocab: two tokens have the id ", at);
    taken[at] = true;
    vocabulary.texts_[at] = text;
  }
  vocabulary.ids_.reserve(object.size());
  for (std::size_t id = 0; id < taken.size(); ++id) {
    if (taken[id]) vocabulary.ids_.emplace(vocabulary.texts_[id], static_cast<std::int32_t>(id));
  }
  return vocabulary;
}

const std::string* Vocabulary::text_of(std::int64_t id) const {
  if (id < 0 || id >= ids()) return nullptr;
  const std::string& text = texts_[static_cast<std::size_t>(id)];
  return id_of(text) == id ? &text : nullptr;
}

}  // namespace bascule::ref
