// Turns text into token ids and back as a checkpoint's tokenizer.json says, with the same results as Hugging Face's
// `tokenizers`.
//
// It reads the tokenizers of Qwen, Llama, Mistral, Gemma, GPT-2 and similar models, that is, files whose `model` is BPE
// or WordLevel, with the normalizers, pre_tokenizers, post_processors and decoders that the headers in this folder
// name. For any other part, read() returns an error that names it. The results may differ around characters newer than
// Unicode 14: PCRE2, which is used here, does not know them. Oniguruma, which `tokenizers` uses, does. So text may be
// split in different places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

struct TokenizerParts;
class TextStream;

// When encode() gives up.
struct EncodeLimits {
  std::size_t most_tokens = std::numeric_limits<std::size_t>::max();  // special tokens that it adds do not count
  std::stop_token stop;
};

// Immutable and cheap to copy; any thread may call it. Only read() blocks.
class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json, and the added tokens of tokenizer_config.json. Returns NOT_FOUND if there is none,
  // UNIMPLEMENTED with the name of an unsupported part (in both cases the model can still be served by token ids),
  // INVALID_ARGUMENT if the file is malformed.
  static absl::StatusOr<Tokenizer> read(const std::filesystem::path& folder);

  // Finds special tokens in `text`, as Hugging Face does. `add_special_tokens` adds the post_processor's tokens, such
  // as one that begins every text. Returns INVALID_ARGUMENT if `text` is not UTF-8 or the vocabulary lacks a token for
  // a part of it (the error names the part), and RESOURCE_EXHAUSTED if a regular expression gave up. Returns
  // OUT_OF_RANGE once it is certain that the text has more than limits.most_tokens. Usually that is before any work,
  // because no token holds more bytes than the longest one. Returns CANCELLED soon after limits.stop was requested.
  absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text, bool add_special_tokens = false,
                                                   const EncodeLimits& limits = {}) const;

  // Leaves out unknown ids, and special tokens unless requested.
  std::string decode(std::span<const std::int64_t> token_ids, bool with_special_tokens = false) const;

  // Returns the text of a completion as it goes on after `prompt` (TextStream::follow()), without special tokens.
  std::string decode_after(std::span<const std::int64_t> prompt, std::span<const std::int64_t> token_ids) const;

  // Decodes like decode(), but piece by piece, as the tokens come.
  TextStream stream(bool with_special_tokens = false) const;

  std::optional<std::int64_t> id_of(std::string_view token) const;
  // The token as the file writes it, or nullopt if no token has the id. The text lives as long as this tokenizer or a
  // copy of it.
  std::optional<std::string_view> token_of(std::int64_t id) const;
  // The bytes of one token: if it cuts a character, decode() has U+FFFD for them. Empty if no token has the id.
  std::string bytes_of(std::int64_t id) const;
  bool is_special(std::int64_t id) const;

  // One more than the largest id.
  std::int64_t ids() const;

  // A hash, as 32 hexadecimal digits, of everything that changes an id or a text: equal hashes mean equal results.
  const std::string& fingerprint() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace bascule::ref
