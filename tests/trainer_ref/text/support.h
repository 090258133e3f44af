// Shared by the tests of this folder: tokenizers of files that they make up.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer_ref/model/support.h"
#include <bascule/trainer_ref/text/tokenizer.h>

namespace bascule::ref {

using Json = nlohmann::json;
using Ids = std::vector<std::int64_t>;

inline Json file_of(const std::string& family) {
  return Json::parse(std::ifstream(fixture(family) / "tokenizer.json"));
}

inline absl::StatusOr<Tokenizer> read(const Json& file) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", file.dump());
  return Tokenizer::read(folder.path());
}

// The tokens of `text`, as the file writes them.
inline std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> tokens;
  const auto token_ids = tokenizer.encode(text);
  EXPECT_TRUE(token_ids.ok()) << token_ids.status();
  if (!token_ids.ok()) return tokens;
  for (const std::int64_t id : *token_ids) tokens.emplace_back(tokenizer.token_of(id).value_or("no token"));
  return tokens;
}

// A byte-pair vocabulary: `tokens` in order of their ids, merges as "a b".
inline Json bpe(const std::vector<std::string>& tokens, const std::vector<std::string>& merges) {
  Json vocabulary = Json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}, {"decoder", {{"type", "Fuse"}}}};
}

inline Json added(std::int64_t id, const std::string& content) { return {{"id", id}, {"content", content}}; }

}  // namespace bascule::ref
