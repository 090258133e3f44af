#include <bascule/trainer_ref/text/tokenizer_file.h>

#include <algorithm>
#include <cstdint>

#include <bascule/kernels/digest.h>
#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/further_tokens.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = nlohmann::json;

// Returns the type of the model. Early files do not name it; the model's keys then determine it.
absl::StatusOr<std::string> type_of_model(const Json& model) {
  if (model.contains("type")) return type_of(model, "model");
  if (model.contains("merges")) return "BPE";
  return invalid_argument("model: expected a type, found none");
}

absl::Status read_model(const Json& file, TokenizerParts& parts) {
  const auto model = file.find("model");
  if (model == file.end() || !model->is_object()) return invalid_argument("no object 'model'");
  BASCULE_ASSIGN(const std::string type, type_of_model(*model));
  if (type != "BPE" && type != "WordLevel") return unread(cat("model ", type));
  BASCULE_ASSIGN(parts.vocabulary, Vocabulary::read(model->value("vocab", Json())));
  BASCULE_ASSIGN(parts.model,
                 type == "BPE" ? read_bpe(*model, parts.vocabulary) : read_word_level(*model, parts.vocabulary));
  return absl::OkStatus();
}

// Covers everything that changes an id or a text, and nothing else: files that differ only in form get the same hash.
std::string fingerprint_of(const TokenizerParts& parts) {
  std::string text = "bascule tokenizer 1\n";
  parts.normalizer.describe(text);
  parts.pre_tokenizer.describe(text);
  parts.post_processor.describe(text);
  parts.decoder.describe(text);
  parts.added.describe(text);
  for (std::int64_t id = 0; id < parts.vocabulary.ids(); ++id) {
    if (const std::string* token = parts.vocabulary.text_of(id)) text += cat("token ", id, " ", measured(*token), "\n");
  }
  parts.model->describe(text);
  kernels::PieceDigest digest;
  digest.add(0, std::as_bytes(std::span(text)));
  return to_hex(digest.finish(text.size()));
}

std::optional<std::size_t> most_bytes_per_token(const TokenizerParts& parts) {
  const bool is_byte_level = parts.normalizer.writes_bytes() || parts.pre_tokenizer.writes_bytes();
  const std::optional<std::size_t> shrinks = parts.normalizer.most_shrinkage(),
                                   longest = parts.model->longest_token(is_byte_level),
                                   added = parts.added.longest_normalized();
  if (!shrinks || !longest || !added || parts.pre_tokenizer.removes_text()) return std::nullopt;
  return *shrinks * std::max({*longest, *added, std::size_t{1}});
}

absl::Status read_parts(const Json& file, TokenizerParts& parts) {
  // `truncation` and `padding`, which fine-tuning often leaves in the file, are not read: transformers resets both
  // before it encodes a text for generation.
  const auto part = [&](const char* key) { return file.value(key, Json()); };
  BASCULE_ASSIGN(parts.normalizer, Normalizer::read(part("normalizer")));
  BASCULE_ASSIGN(parts.pre_tokenizer, PreTokenizer::read(part("pre_tokenizer")));
  BASCULE_ASSIGN(parts.post_processor, PostProcessor::read(part("post_processor")));
  BASCULE_ASSIGN(parts.decoder, TokenDecoder::read(part("decoder")));
  return read_model(file, parts);
}

absl::Status read_added_tokens(const Json& list, TokenizerParts& parts) {
  BASCULE_ASSIGN(parts.added, AddedTokens::read(list, parts.vocabulary, parts.normalizer));
  // An id without a token has no text, and a model may have no embedding for it.
  for (const std::int64_t id : parts.post_processor.special_ids())
    if (parts.added.find(id) == nullptr && parts.vocabulary.text_of(id) == nullptr)
      return invalid_argument("post_processor TemplateProcessing: expected ids of tokens, found ", id,
                              ", which neither the vocabulary nor added_tokens has");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenizerParts>> read_tokenizer_file(const std::filesystem::path& path) {
  BASCULE_ASSIGN(Json file, read_json_object(path));
  const std::filesystem::path folder = path.parent_path(), config_path = folder / "tokenizer_config.json";
  absl::StatusOr<Json> config = read_json_object(config_path);
  if (absl::IsNotFound(config.status())) config = Json::object();
  BASCULE_TRY(config.status());
  if (config->value("split_special_tokens", Json()) == true)
    return annotate(unread("split_special_tokens"), config_path.string());
  auto parts = std::make_shared<TokenizerParts>();
  BASCULE_TRY(annotate(read_parts(file, *parts), path.string()));
  BASCULE_TRY(add_further_tokens(folder, *config, parts->vocabulary, file["added_tokens"]));
  BASCULE_TRY(annotate(read_added_tokens(file["added_tokens"], *parts), path.string()));
  parts->fingerprint = fingerprint_of(*parts);
  parts->most_bytes_per_token = most_bytes_per_token(*parts);
  return parts;
}

}  // namespace bascule::ref
