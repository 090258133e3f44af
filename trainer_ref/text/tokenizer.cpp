#include <bascule/trainer_ref/text/tokenizer.h>

#include <algorithm>
#include <utility>

#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/trainer_ref/text/tokenizer_file.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::ref {
namespace {

using TokenIds = std::vector<std::int64_t>;

absl::Status too_many(std::size_t at_least) { return absl::OutOfRangeError(cat("has at least ", at_least, " tokens")); }

// How many tokens the parts of a text have at least.
std::size_t fewest_tokens(const TokenizerParts& parts, const std::vector<AddedTokens::Part>& found) {
  std::size_t fewest = 0;
  for (const auto& [span, token] : found) {
    if (token != nullptr)
      ++fewest;
    else if (parts.most_bytes_per_token)
      fewest += (span.end - span.begin + *parts.most_bytes_per_token - 1) / *parts.most_bytes_per_token;
  }
  return fewest;
}

// A text between added tokens, normalized.
absl::Status encode_pre_tokens(const TokenizerParts& parts, std::string text, bool at_start, const EncodeLimits& limits,
                               TokenIds& token_ids) {
  PreTokens pre_tokens(std::move(text), at_start);
  BASCULE_TRY(parts.pre_tokenizer.apply(pre_tokens));
  for (const PreToken& pre_token : pre_tokens.list) {
    BASCULE_TRY(parts.model->encode(pre_tokens.of(pre_token), token_ids, limits.stop));
    if (limits.stop.stop_requested()) return absl::CancelledError("encoding was stopped");
    if (token_ids.size() > limits.most_tokens) return too_many(token_ids.size());
  }
  return absl::OkStatus();
}

// A text between added tokens that are found before it is normalized.
absl::Status encode_section(const TokenizerParts& parts, Section section, const EncodeLimits& limits,
                            TokenIds& token_ids) {
  BASCULE_TRY(parts.normalizer.apply(section));
  BASCULE_ASSIGN(const std::vector<AddedTokens::Part> found, parts.added.split(section.text, /*is_normalized=*/true));
  for (const auto& [span, token] : found) {
    if (token != nullptr) {
      token_ids.push_back(token->id);
      continue;
    }
    const bool is_whole = span.end - span.begin == section.text.size();
    std::string text = is_whole ? std::move(section.text) : section.text.substr(span.begin, span.end - span.begin);
    BASCULE_TRY(encode_pre_tokens(parts, std::move(text), section.at_start && span.begin == 0, limits, token_ids));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::read(const std::filesystem::path& folder) {
  BASCULE_ASSIGN(std::shared_ptr<const TokenizerParts> parts, read_tokenizer_file(folder / "tokenizer.json"));
  return Tokenizer(std::move(parts));
}

absl::StatusOr<TokenIds> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                           const EncodeLimits& limits) const {
  if (!is_utf8(text)) return invalid_argument("the text is not UTF-8");
  TokenIds token_ids;
  BASCULE_ASSIGN(const std::vector<AddedTokens::Part> found, parts_->added.split(text, /*is_normalized=*/false));
  if (const std::size_t fewest = fewest_tokens(*parts_, found); fewest > limits.most_tokens) return too_many(fewest);
  for (const auto& [span, token] : found) {
    if (token != nullptr) {
      token_ids.push_back(token->id);
      continue;
    }
    Section section{std::string(text.substr(span.begin, span.end - span.begin)), span.begin == 0};
    BASCULE_TRY(encode_section(*parts_, std::move(section), limits, token_ids));
  }
  if (token_ids.size() > limits.most_tokens) return too_many(token_ids.size());
  return parts_->post_processor.apply(std::move(token_ids), add_special_tokens);
}

std::string Tokenizer::decode(std::span<const std::int64_t> token_ids, bool with_special_tokens) const {
  TextStream text = stream(with_special_tokens);
  std::string whole;
  for (const std::int64_t id : token_ids) whole += text.push(id);
  return whole + text.finish();
}

std::string Tokenizer::decode_after(std::span<const std::int64_t> prompt,
                                    std::span<const std::int64_t> token_ids) const {
  TextStream text = stream();
  text.follow(text.tail_of(prompt));
  std::string whole;
  for (const std::int64_t id : token_ids) whole += text.push(id);
  return whole + text.finish();
}

TextStream Tokenizer::stream(bool with_special_tokens) const { return TextStream(parts_, with_special_tokens); }

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const {
  if (const AddedToken* added = parts_->added.find(token)) return added->id;
  return parts_->vocabulary.id_of(token);
}

std::optional<std::string_view> Tokenizer::token_of(std::int64_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  const std::string* text = parts_->vocabulary.text_of(id);
  return text == nullptr ? std::nullopt : std::optional<std::string_view>(*text);
}

std::string Tokenizer::bytes_of(std::int64_t id) const {
  std::string text = decode(std::span(&id, 1), /*with_special_tokens=*/true);
  if (text.find("\uFFFD") == std::string::npos) return text;
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  return parts_->decoder.bytes_of(*parts_->vocabulary.text_of(id));
}

bool Tokenizer::is_special(std::int64_t id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr && added->is_special;
}

std::int64_t Tokenizer::ids() const { return std::max(parts_->vocabulary.ids(), parts_->added.ids()); }

const std::string& Tokenizer::fingerprint() const { return parts_->fingerprint; }

}  // namespace bascule::ref
