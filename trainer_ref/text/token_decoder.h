// tokenizer.json's decoder: ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/decoder_stage.h>
#include <bascule/trainer_ref/text/pattern.h>

namespace bascule::ref {

// Immutable; any thread may call it.
class TokenDecoder {
 public:
  // UNIMPLEMENTED names an unsupported decoder. `part` may be null: tokens are joined by spaces.
  static absl::StatusOr<TokenDecoder> read(const nlohmann::json& part);

  // Returns stages for one text, linked in order, with JoinStage last. They refer to this decoder.
  std::vector<std::unique_ptr<DecoderStage>> stages() const;

  // Returns the bytes that `token` represents, which may cut a character. Skips steps that change characters.
  std::string bytes_of(std::string_view token) const;

  void describe(std::string& out) const;

 private:
  struct Spaced {};
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string character;
    std::size_t start = 0, stop = 0;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Metaspace {
    std::string replacement;
    bool prepends = false;
  };
  using Step = std::variant<Spaced, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace>;

  absl::Status add(const nlohmann::json& part);
  static std::unique_ptr<DecoderStage> stage_of(const Step& step);

  std::vector<Step> steps_;
};

}  // namespace bascule::ref
