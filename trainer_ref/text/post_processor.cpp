#include <bascule/trainer_ref/text/post_processor.h>

#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/vocabulary.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using Json = nlohmann::json;

absl::Status malformed(std::string_view expected, const Json& found) {
  return invalid_argument("post_processor TemplateProcessing: expected ", expected, ", found ", found.dump());
}

// The ids of {"id": "<s>", "type_id": 0}, which `special_tokens` has under its id.
absl::StatusOr<std::vector<std::int64_t>> ids_of(const Json& special, const Json& special_tokens) {
  const std::string name = special.is_object() && special.contains("id") && special["id"].is_string()
                               ? special["id"].get<std::string>()
                               : std::string();
  const Json entry = special_tokens.is_object() ? special_tokens.value(name, Json()) : Json();
  const Json list = entry.is_object() ? entry.value("ids", Json()) : Json();
  if (!list.is_array()) return malformed(cat("special_tokens to have ids of '", name, "'"), special_tokens);
  std::vector<std::int64_t> token_ids;
  for (const Json& id : list) {
    if (!is_token_id(id)) return malformed("an id", id);
    token_ids.push_back(id.get<std::int64_t>());
  }
  return token_ids;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::read(const Json& part) {
  PostProcessor post_processor;
  if (!part.is_null()) BASCULE_TRY(post_processor.add(part));
  return post_processor;
}

absl::Status PostProcessor::add(const Json& part) {
  BASCULE_ASSIGN(const std::string type, type_of(part, "post_processor"));
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return add_template(part);
  if (type != "Sequence") return unread(cat("post_processor ", type));
  BASCULE_ASSIGN(const Json* list, list_of(part, "processors"));
  for (const Json& each : *list) BASCULE_TRY(add(each));
  return absl::OkStatus();
}

absl::Status PostProcessor::add_template(const Json& part) {
  if (!pieces_.empty()) return unread("a post_processor with two TemplateProcessing");
  const Json single = part.value("single", Json());
  const Json special_tokens = part.value("special_tokens", Json());
  if (!single.is_array() || single.empty()) return malformed("a list 'single'", single);
  for (const Json& piece : single) {
    Piece& next = pieces_.emplace_back();
    if (piece.is_object() && piece.contains("SpecialToken")) {
      BASCULE_ASSIGN(next.token_ids, ids_of(piece["SpecialToken"], special_tokens));
    } else if (piece.is_object() && piece.contains("Sequence") && piece["Sequence"].is_object() &&
               piece["Sequence"].value("id", Json()) == "A") {
      next.is_text = true;
    } else {
      return malformed("a SpecialToken, or the Sequence A", piece);
    }
  }
  return absl::OkStatus();
}

std::vector<std::int64_t> PostProcessor::apply(std::vector<std::int64_t> token_ids, bool add_special_tokens) const {
  if (pieces_.empty()) return token_ids;
  std::vector<std::int64_t> all;
  all.reserve(token_ids.size() + pieces_.size());
  for (const Piece& piece : pieces_) {
    if (!piece.is_text && !add_special_tokens) continue;
    const std::vector<std::int64_t>& from = piece.is_text ? token_ids : piece.token_ids;
    all.insert(all.end(), from.begin(), from.end());
  }
  return all;
}

std::vector<std::int64_t> PostProcessor::special_ids() const {
  std::vector<std::int64_t> all;
  for (const Piece& piece : pieces_) all.insert(all.end(), piece.token_ids.begin(), piece.token_ids.end());
  return all;
}

void PostProcessor::describe(std::string& out) const {
  for (const Piece& piece : pieces_) {
    out += "post_processor ";
    out += piece.is_text ? "text" : "special";
    for (const std::int64_t id : piece.token_ids) out += cat(" ", id);
    out += "\n";
  }
}

}  // namespace bascule::ref
