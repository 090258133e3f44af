// The parts of a tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include <bascule/trainer_ref/text/added_tokens.h>
#include <bascule/trainer_ref/text/normalizer.h>
#include <bascule/trainer_ref/text/post_processor.h>
#include <bascule/trainer_ref/text/pre_tokenizer.h>
#include <bascule/trainer_ref/text/token_decoder.h>
#include <bascule/trainer_ref/text/token_model.h>
#include <bascule/trainer_ref/text/vocabulary.h>

namespace bascule::ref {

struct TokenizerParts {
  Vocabulary vocabulary;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  TokenDecoder decoder;
  AddedTokens added;
  std::unique_ptr<TokenModel> model;  // refers to `vocabulary`
  std::string fingerprint;
  // The most bytes of a text, outside of added tokens that are found before it is normalized, that become one token.
  // None if there is no bound: a normalizer may remove text, or all that the vocabulary lacks becomes one token.
  std::optional<std::size_t> most_bytes_per_token;
};

// Also reads tokenizer_config.json beside it, if that exists, which may have further added tokens. Errors are as in
// Tokenizer::read().
absl::StatusOr<std::shared_ptr<const TokenizerParts>> read_tokenizer_file(const std::filesystem::path& path);

}  // namespace bascule::ref
