#include <algorithm>
#include <optional>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/token_model.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Each word is one token; one that the vocabulary lacks is the unk_token, if the vocabulary has that.
class WordLevel : public TokenModel {
 public:
  WordLevel(const Vocabulary& vocabulary, std::optional<std::int32_t> unknown)
      : vocabulary_(vocabulary), unknown_(unknown) {}

  absl::Status encode(std::string_view word, std::vector<std::int64_t>& token_ids,
                      const std::stop_token& /*stop*/) const override {
    const std::optional<std::int32_t> id = vocabulary_.id_of(word);
    if (!id && !unknown_) return no_token(word);
    token_ids.push_back(id ? *id : *unknown_);
    return absl::OkStatus();
  }

  std::optional<std::size_t> longest_token(bool is_byte_level) const override {
    if (unknown_) return std::nullopt;
    std::size_t longest = 0;
    for (std::int64_t id = 0; id < vocabulary_.ids(); ++id) {
      const std::string* text = vocabulary_.text_of(id);
      if (text != nullptr) longest = std::max(longest, is_byte_level ? bytes_of_token(*text).size() : text->size());
    }
    return longest;
  }

  void describe(std::string& out) const override { out += cat("model WordLevel ", unknown_.value_or(-1), "\n"); }

 private:
  const Vocabulary& vocabulary_;
  std::optional<std::int32_t> unknown_;
};

}  // namespace

absl::Status no_token(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return invalid_argument("the vocabulary has no token '", text.substr(0, kShown), "'");
}

absl::StatusOr<std::unique_ptr<TokenModel>> read_word_level(const nlohmann::json& model, const Vocabulary& vocabulary) {
  absl::Status status;
  const std::string unknown = JsonKeys(model, "model WordLevel", status).text("unk_token", "<unk>");
  BASCULE_TRY(status);
  return std::make_unique<WordLevel>(vocabulary, vocabulary.id_of(unknown));
}

}  // namespace bascule::ref
