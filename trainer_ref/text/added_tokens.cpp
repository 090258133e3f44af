#include <bascule/trainer_ref/text/added_tokens.h>

#include <algorithm>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/unicode.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// What Rust's regular expressions call a word character.
constexpr std::string_view kWordCharacter = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}])";

std::size_t space_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t last = last_character_at(text.substr(0, end));
    if (!is_white_space(first_character(text.substr(last)))) break;
    end = last;
  }
  return end;
}

std::size_t space_behind(std::string_view text, std::size_t begin) {
  while (begin < text.size() && is_white_space(first_character(text.substr(begin))))
    begin += character_bytes(text[begin]);
  return begin;
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::read(const nlohmann::json& list, const Vocabulary& vocabulary,
                                              const Normalizer& normalizer) {
  AddedTokens added;
  if (!list.is_null() && !list.is_array()) return invalid_argument("added_tokens is not a list");
  for (const nlohmann::json& value : list) BASCULE_TRY(added.add(value, vocabulary, normalizer));
  for (std::uint32_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    (token.is_normalized ? added.normalized_ : added.raw_).add(token.sought, i);
    if (token.single_word && !added.word_character_) {
      BASCULE_ASSIGN(added.word_character_, Pattern::regex(kWordCharacter));
    }
  }
  added.raw_.finish();
  added.normalized_.finish();
  return added;
}

absl::Status AddedTokens::add(const nlohmann::json& value, const Vocabulary& vocabulary, const Normalizer& normalizer) {
  const auto malformed = [&] {
    return invalid_argument("added_tokens: expected an id and a content, found ", value.dump());
  };
  if (!value.is_object()) return malformed();
  const auto id = value.find("id"), content = value.find("content");
  if (id == value.end() || !is_token_id(*id) || content == value.end() || !content->is_string()) return malformed();
  AddedToken token;
  token.id = id->get<std::int64_t>();
  token.content = content->get<std::string>();
  if (token.content.empty()) return absl::OkStatus();  // as Hugging Face's tokenizers do
  absl::Status status;
  JsonKeys keys(value, "added_tokens", status);
  token.single_word = keys.flag("single_word");
  token.strips_left = keys.flag("lstrip");
  token.strips_right = keys.flag("rstrip");
  token.is_normalized = keys.flag("normalized");
  token.is_special = keys.flag("special");
  BASCULE_TRY(status);

  // Hugging Face's tokenizers ignore the ids that the file gives to added tokens, and number them after the model's.
  const std::optional<std::int32_t> known = vocabulary.id_of(token.content);
  const std::int64_t expected = known ? *known : static_cast<std::int64_t>(vocabulary.size()) + beyond_++;
  if (find(token.content) != nullptr || by_id_.contains(token.id)) {
    return invalid_argument("added_tokens: two have the content or the id of ", value.dump());
  }
  if (token.id != expected) {
    return invalid_argument("added_tokens: '", token.content, "': expected the id ", expected,
                            ", which Hugging Face's tokenizers give it, found ", token.id,
                            "; load the tokenizer with transformers and write it anew by save_pretrained()");
  }
  Section sought{token.content, false};
  if (token.is_normalized) BASCULE_TRY(normalizer.apply(sought));
  token.sought = std::move(sought.text);
  const auto place = static_cast<std::uint32_t>(tokens_.size());
  by_id_.emplace(token.id, place);
  by_content_.emplace(token.content, place);
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::StatusOr<bool> AddedTokens::is_word(std::string_view character) const {
  std::vector<Segment> segments;
  BASCULE_TRY(word_character_->find(character, {0, character.size()}, segments));
  return segments.front().is_match;
}

absl::StatusOr<std::vector<AddedTokens::Part>> AddedTokens::split(std::string_view text, bool is_normalized) const {
  const Needles& needles = is_normalized ? normalized_ : raw_;
  std::vector<Part> parts;
  std::size_t covered = 0, from = 0;
  while (const std::optional<Needles::Found> found = needles.next(text, from)) {
    const AddedToken& token = tokens_[found->number];
    Span span = found->span;
    from = span.end;
    if (token.single_word && span.begin > 0) {
      const std::size_t before = last_character_at(text.substr(0, span.begin));
      BASCULE_ASSIGN(const bool within, is_word(text.substr(before, span.begin - before)));
      if (within) continue;
    }
    if (token.single_word && span.end < text.size()) {
      BASCULE_ASSIGN(const bool within, is_word(text.substr(span.end, character_bytes(text[span.end]))));
      if (within) continue;
    }
    // Space that the last token took is not taken again.
    if (token.strips_left) span.begin = std::max(space_before(text, span.begin), covered);
    if (token.strips_right) span.end = space_behind(text, span.end);
    // The token itself is space, and the last one took it.
    if (span.begin >= span.end) continue;
    if (covered < span.begin) parts.push_back({{covered, span.begin}, nullptr});
    parts.push_back({span, &token});
    covered = span.end;
  }
  if (covered < text.size()) parts.push_back({{covered, text.size()}, nullptr});
  return parts;
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

std::int64_t AddedTokens::ids() const {
  std::int64_t largest = -1;
  for (const AddedToken& token : tokens_) largest = std::max(largest, token.id);
  return largest + 1;
}

std::optional<std::size_t> AddedTokens::longest_normalized() const {
  std::size_t longest = 0;
  for (const AddedToken& token : tokens_) {
    if (!token.is_normalized) continue;
    if (token.strips_left || token.strips_right) return std::nullopt;
    longest = std::max(longest, token.sought.size());
  }
  return longest;
}

void AddedTokens::describe(std::string& out) const {
  std::vector<const AddedToken*> sorted;
  for (const AddedToken& token : tokens_) sorted.push_back(&token);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  for (const AddedToken* token : sorted) {
    out +=
        cat("added ", token->id, " ", measured(token->content), " ", int{token->single_word}, int{token->strips_left},
            int{token->strips_right}, int{token->is_normalized}, int{token->is_special}, "\n");
  }
}

}  // namespace bascule::ref
