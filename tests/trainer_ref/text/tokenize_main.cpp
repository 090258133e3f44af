// Reads JSON, one value per line, and writes one object per line. For tests/tools/compare-tokenizers.
//
//   bascule-tokenize FOLDER <values.jsonl
//
// Of a text:
//   ids       without the post_processor's special tokens
//   all_ids   with them
// Of these, or of a list of ids:
//   decoded   special tokens left out
//   special   special tokens included
//   streamed  decoded token by token: the pieces
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <bascule/trainer_ref/text/text_stream.h>
#include <bascule/trainer_ref/text/tokenizer.h>

namespace {

using bascule::ref::Tokenizer;
using nlohmann::json;
using TokenIds = std::vector<std::int64_t>;

json decoded(const Tokenizer& tokenizer, const TokenIds& token_ids) {
  json pieces = json::array();
  bascule::ref::TextStream stream = tokenizer.stream();
  for (const std::int64_t id : token_ids) pieces.push_back(stream.push(id));
  pieces.push_back(stream.finish());
  return {{"decoded", tokenizer.decode(token_ids)},
          {"special", tokenizer.decode(token_ids, /*with_special_tokens=*/true)},
          {"streamed", pieces}};
}

json answer_to(const Tokenizer& tokenizer, const json& value) {
  if (value.is_array()) return decoded(tokenizer, value.get<TokenIds>());
  const auto& text = value.get_ref<const std::string&>();
  const auto ids = tokenizer.encode(text), all_ids = tokenizer.encode(text, /*add_special_tokens=*/true);
  if (!ids.ok() || !all_ids.ok()) return {{"error", ids.status().ToString()}};
  json answer = decoded(tokenizer, *all_ids);
  answer["ids"] = *ids;
  answer["all_ids"] = *all_ids;
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("bascule-tokenize: expected a folder with a tokenizer.json\n", stderr);
    return 2;
  }
  const auto tokenizer = Tokenizer::read(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "bascule-tokenize: %s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer_to(*tokenizer, json::parse(line)) << "\n";
  }
  return 0;
}
