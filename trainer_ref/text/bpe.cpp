#include <bascule/trainer_ref/text/bpe.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/unicode.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<std::unique_ptr<TokenModel>> read_bpe(const nlohmann::json& model, const Vocabulary& vocabulary) {
  return Bpe::read(model, vocabulary);
}

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::read(const nlohmann::json& model, const Vocabulary& vocabulary) {
  std::unique_ptr<Bpe> bpe(new Bpe(vocabulary));
  absl::Status status;
  JsonKeys keys(model, "model BPE", status);
  if (const nlohmann::json* dropout = keys.find("dropout"); dropout != nullptr && *dropout != 0) {
    return unread(cat("model BPE with dropout ", dropout->dump()));
  }
  for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!keys.text(option, "").empty()) return unread(cat("model BPE with ", option));
  }
  if (keys.find("unk_token") != nullptr) bpe->unknown_ = keys.text("unk_token", "");
  bpe->fuse_unknown_ = keys.flag("fuse_unk");
  bpe->byte_fallback_ = keys.flag("byte_fallback");
  bpe->ignore_merges_ = keys.flag("ignore_merges");
  BASCULE_TRY(status);
  const nlohmann::json* merges = keys.find("merges");
  if (merges == nullptr || !merges->is_array()) return invalid_argument("model BPE: no list 'merges'");
  BASCULE_ASSIGN(bpe->merges_, Merges::read(*merges, vocabulary));

  for (std::size_t character = 0; character < kDirect; ++character) {
    std::string text;
    append_character(text, static_cast<char32_t>(character));
    bpe->direct_.at(character) = vocabulary.id_of(text).value_or(-1);
  }
  for (unsigned byte = 0; byte < bpe->bytes_.size(); ++byte) {
    bpe->bytes_.at(byte) = vocabulary.id_of(absl::StrFormat("<0x%02X>", byte));
  }
  bpe->find_whole_tokens();
  return bpe;
}

// Most words are tokens, and merging would only find the same token. But a token's text need not merge to that token.
void Bpe::find_whole_tokens() {
  whole_.assign(static_cast<std::size_t>(vocabulary_.ids()), false);
  std::vector<std::int32_t> symbols;
  for (std::int64_t id = 0; id < vocabulary_.ids(); ++id) {
    const std::string* text = vocabulary_.text_of(id);
    if (text == nullptr || text->empty()) continue;
    bool whole = ignore_merges_;
    if (!whole) {
      symbols.clear();
      whole = add_symbols(*text, symbols).ok();
      merges_.apply(symbols);
      whole = whole && symbols.size() == 1 && symbols.front() == id;
    }
    whole_[static_cast<std::size_t>(id)] = whole;
  }
}

std::optional<std::int32_t> Bpe::id_of_character(std::string_view character) const {
  const char32_t code = first_character(character);
  if (code >= kDirect) return vocabulary_.id_of(character);
  return direct_[code] < 0 ? std::nullopt : std::optional(direct_[code]);
}

absl::Status Bpe::add_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  std::optional<std::int32_t> unknown;  // not yet among the symbols, since the next may be fused with it
  for (; !word.empty(); word.remove_prefix(character_bytes(word.front()))) {
    const std::string_view character = word.substr(0, character_bytes(word.front()));
    if (const std::optional<std::int32_t> id = id_of_character(character)) {
      if (unknown) symbols.push_back(*std::exchange(unknown, std::nullopt));
      symbols.push_back(*id);
      continue;
    }
    const auto byte_id = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c).has_value(); })) {
      for (const char c : character) symbols.push_back(*byte_id(c));
      continue;
    }
    if (!unknown_) continue;  // as Hugging Face's tokenizers: without an unk_token, the character is left out
    if (unknown && !fuse_unknown_) symbols.push_back(*unknown);
    unknown = vocabulary_.id_of(*unknown_);
    if (!unknown) return no_token(character);
  }
  if (unknown) symbols.push_back(*unknown);
  return absl::OkStatus();
}

absl::Status Bpe::encode(std::string_view word, std::vector<std::int64_t>& token_ids,
                         const std::stop_token& stop) const {
  if (const std::optional<std::int32_t> id = vocabulary_.id_of(word); id && whole_[static_cast<std::size_t>(*id)]) {
    token_ids.push_back(*id);
    return absl::OkStatus();
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  BASCULE_TRY(add_symbols(word, symbols));
  merges_.apply(symbols, stop);
  token_ids.insert(token_ids.end(), symbols.begin(), symbols.end());
  return absl::OkStatus();
}

std::optional<std::size_t> Bpe::longest_token(bool is_byte_level) const {
  const auto has = [](const std::optional<std::int32_t>& id) { return id.has_value(); };
  const bool falls_back = byte_fallback_ && std::all_of(bytes_.begin(), bytes_.end(), has);
  bool has_all_bytes = is_byte_level;
  for (std::size_t character = 0; character < kDirect; ++character)
    has_all_bytes = has_all_bytes && (direct_.at(character) >= 0 || !byte_of(static_cast<char32_t>(character)));
  if (!falls_back && !has_all_bytes && (!unknown_ || fuse_unknown_)) return std::nullopt;
  constexpr std::size_t kCharacter = 4;  // which may be unknown
  std::size_t longest = kCharacter;
  for (std::int64_t id = 0; id < vocabulary_.ids(); ++id) {
    const std::string* text = vocabulary_.text_of(id);
    if (text == nullptr) continue;
    longest = std::max(longest, is_byte_level ? bytes_of_token(*text).size() : text->size());
  }
  return longest;
}

void Bpe::describe(std::string& out) const {
  out += cat("model BPE ", unknown_ ? measured(*unknown_) : "none", " ", int{fuse_unknown_}, int{byte_fallback_},
             int{ignore_merges_}, "\n");
  merges_.describe(out);
}

}  // namespace bascule::ref
