// tokenizer.json, as far as it is read here: text to token ids and back.
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

class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json. UNIMPLEMENTED names the part of the format that is not read here; such a model can
  // still be served by token ids.
  static absl::StatusOr<Tokenizer> read(const std::filesystem::path& folder);

  absl::StatusOr<std::vector<std::int64_t>> encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> token_ids) const;  // special tokens are left out

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

}  // namespace bascule::ref
