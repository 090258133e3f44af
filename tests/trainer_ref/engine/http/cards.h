// A model's card for tests, with a tokenizer of single bytes: the token of an ASCII character up to 'a' is its code, 1
// and 2 are the two bytes of 'ä', 98 is <s> and 99 <end>.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temp_folder.h"
#include <bascule/trainer_ref/engine/http/model_card.h>

namespace bascule::ref {

inline constexpr std::int64_t kStart = 98, kEnd = 99;

// `adds_start`: encode() puts <s> before a text, as Llama's tokenizers do.
inline Tokenizer byte_tokenizer(bool adds_start = false) {
  using nlohmann::json;
  const auto special = [](std::int64_t id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  json vocabulary{
      {"\u00C3", 1}, {"\u00A4", 2}, {"\u0120", 32}, {"<s>", kStart}, {"<end>", kEnd}};  // as ByteLevel writes
  for (int code = 33; code < kStart; ++code) vocabulary[std::string(1, static_cast<char>(code))] = code;
  json file{
      {"version", "1.0"},
      {"added_tokens", {special(kStart, "<s>"), special(kEnd, "<end>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
  if (adds_start)
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {kStart}}, {"tokens", {"<s>"}}}}}}};
  const test::TempFolder folder;
  std::ofstream(folder.path() / "tokenizer.json") << file.dump();
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::read(folder.path());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// Renders a conversation as "<s>U:Hi A:", with upper case for roles.
inline constexpr const char* kTestTemplate =
    "<s>{% for message in messages %}{{ message.role[0] | upper }}:{{ message.content | trim }} {% endfor %}"
    "{% if tools %}T{{ tools | length }} {% endif %}{% if shout %}! {% endif %}"
    "{% if add_generation_prompt %}A:{% endif %}";

inline ModelCard test_card() {
  ModelCard card;
  card.id = "tiny";
  card.vocab_size = 100;
  card.eos_token_ids = {kEnd};
  card.max_model_len = 64;
  card.max_batch = 8;
  card.max_choices = 12;
  card.worker = "engine-0";
  card.tokenizer = byte_tokenizer();
  card.chat = *ChatTemplate::parse(kTestTemplate);
  return card;
}

}  // namespace bascule::ref
