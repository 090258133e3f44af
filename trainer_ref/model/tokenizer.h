// tokenizer.json of Hugging Face's `tokenizers`, as far as it is read here: text to token ids and back.
//
// Read are tokens by character: model WordLevel, a pre_tokenizer Split that isolates each match of the
// regular expression "." (or none: the whole text is one token), decoder Fuse, and added tokens. Every other
// part is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace bascule::ref {

// Immutable and cheap to copy; any thread may call it.
class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json. NOT_FOUND where there is none; UNIMPLEMENTED names the part of the format
  // that is not read here; either such model can still be served by token ids. INVALID_ARGUMENT: the file is
  // malformed.
  static absl::StatusOr<Tokenizer> read(const std::filesystem::path& folder);

  // INVALID_ARGUMENT names the first piece of `text` that the vocabulary does not have. Special tokens in
  // `text` are found, as Hugging Face finds them.
  absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text) const;

  // Special tokens and ids beyond the vocabulary are left out.
  std::string decode(std::span<const std::int64_t> token_ids) const;

 private:
  struct Data;
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

}  // namespace bascule::ref
