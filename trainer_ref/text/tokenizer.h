// tokenizer.json of Hugging Face's `tokenizers`: text to token ids and back, with their ids and their texts.
//
// Read are the tokenizers of Qwen, Llama, Mistral, Gemma, GPT-2 and their like: models BPE and WordLevel, with the
// normalizers, pre_tokenizers, post_processors and decoders that the headers beside this one name. Every other part is
// refused by name. PCRE2's Unicode is older than Oniguruma's: around characters newer than Unicode 14, words may be cut
// in other places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct TokenizerParts;
class TextStream;

// Immutable and cheap to copy; any thread may call it. No call blocks but read().
class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json. NOT_FOUND where there is none; UNIMPLEMENTED names the part of the format
  // that is not read here; either such model can still be served by token ids. INVALID_ARGUMENT: the file is
  // malformed.
  static absl::StatusOr<Tokenizer> read(const std::filesystem::path& folder);

  // Special tokens in `text` are found, as Hugging Face finds them. With `add_special_tokens`, those of the
  // post_processor are added, such as a token that begins every text. INVALID_ARGUMENT: `text` is not UTF-8, or the
  // vocabulary has no token for a part of it, which the error names. RESOURCE_EXHAUSTED: a regular expression gave up.
  absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text, bool add_special_tokens = false) const;

  // Ids that are no token's are left out, and special tokens unless those are asked for.
  std::string decode(std::span<const std::int64_t> token_ids, bool with_special_tokens = false) const;

  // The same text piece by piece, as the tokens come.
  TextStream stream(bool with_special_tokens = false) const;

  std::optional<std::int64_t> id_of(std::string_view token) const;
  // The token as the file writes it; none where no token has the id. It lives as long as this, or a copy.
  std::optional<std::string_view> token_of(std::int64_t id) const;
  // The bytes of one token: where it cuts a character, decode() has U+FFFD for them. Empty where no token has the id.
  std::string bytes_of(std::int64_t id) const;
  bool is_special(std::int64_t id) const;

  // One more than the largest id.
  std::int64_t ids() const;

  // 32 hexadecimal digits over all that changes an id or a text: tokenizers with the same one give the same results.
  const std::string& fingerprint() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace bascule::ref
