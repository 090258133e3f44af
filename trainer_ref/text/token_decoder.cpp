#include <bascule/trainer_ref/text/token_decoder.h>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/unicode.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// Combines several functions into one visitor.
template <typename... Functions>
struct Cases : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Cases(Functions...) -> Cases<Functions...>;

absl::StatusOr<std::size_t> count_of(const nlohmann::json& part, const char* key) {
  const nlohmann::json value = part.value(key, nlohmann::json());
  if (!value.is_number_unsigned())
    return invalid_argument("decoder Strip: ", key, ": expected a count, found ", value.dump());
  return value.get<std::size_t>();
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::read(const nlohmann::json& part) {
  TokenDecoder decoder;
  if (part.is_null()) {
    decoder.steps_.emplace_back(Spaced{});
  } else {
    BASCULE_TRY(decoder.add(part));
  }
  return decoder;
}

absl::Status TokenDecoder::add(const nlohmann::json& part) {
  BASCULE_ASSIGN(const std::string type, type_of(part, "decoder"));
  absl::Status status;
  JsonKeys keys(part, cat("decoder ", type), status);
  if (type == "Sequence") {
    BASCULE_ASSIGN(const nlohmann::json* list, list_of(part, "decoders"));
    for (const nlohmann::json& each : *list) BASCULE_TRY(add(each));
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Strip") {
    Strip strip{.character = keys.text("content", "")};
    if (strip.character.empty() || strip.character.size() != character_bytes(strip.character.front())) {
      return invalid_argument("decoder Strip: content: expected one character, found '", strip.character, "'");
    }
    BASCULE_ASSIGN(strip.start, count_of(part, "start"));
    BASCULE_ASSIGN(strip.stop, count_of(part, "stop"));
    steps_.emplace_back(std::move(strip));
  } else if (type == "Replace") {
    BASCULE_ASSIGN(Pattern pattern, Pattern::read(part.value("pattern", nlohmann::json()), "decoder Replace"));
    steps_.emplace_back(Replace{std::move(pattern), keys.text("content", "")});
  } else if (type == "Metaspace") {
    const bool prepends = keys.find("add_prefix_space") == nullptr || keys.flag("add_prefix_space");
    const std::string scheme = keys.text("prepend_scheme", prepends ? "always" : "never");
    Metaspace metaspace{keys.text("replacement", "\u2581"), scheme != "never"};
    if (metaspace.replacement.empty()) return invalid_argument("decoder Metaspace: expected a replacement, found none");
    steps_.emplace_back(std::move(metaspace));
  } else {
    return unread(cat("decoder ", type));
  }
  return status;
}

std::unique_ptr<DecoderStage> TokenDecoder::stage_of(const Step& step) {
  using Stage = std::unique_ptr<DecoderStage>;
  return std::visit(
      Cases{[](const Spaced&) -> Stage { return std::make_unique<SpacedStage>(); },
            [](const ByteLevel&) -> Stage { return std::make_unique<ByteLevelStage>(); },
            [](const ByteFallback&) -> Stage { return std::make_unique<ByteFallbackStage>(); },
            [](const Fuse&) -> Stage { return std::make_unique<FuseStage>(); },
            [](const Strip& s) -> Stage { return std::make_unique<StripStage>(s.character, s.start, s.stop); },
            [](const Replace& r) -> Stage {
              const std::string_view character = r.pattern.single_character();
              if (!character.empty()) return std::make_unique<ReplaceCharacterStage>(character, r.content);
              return std::make_unique<ReplaceStage>(r.pattern, r.content);
            },
            [](const Metaspace& m) -> Stage { return std::make_unique<MetaspaceStage>(m.replacement, m.prepends); }},
      step);
}

std::vector<std::unique_ptr<DecoderStage>> TokenDecoder::stages() const {
  std::vector<std::unique_ptr<DecoderStage>> stages;
  stages.reserve(steps_.size() + 1);
  for (const Step& step : steps_) stages.push_back(stage_of(step));
  stages.push_back(std::make_unique<JoinStage>());
  for (std::size_t i = 0; i + 1 < stages.size(); ++i) stages[i]->set_next(stages[i + 1].get());
  return stages;
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return bytes_of_token(token);
    if (!std::holds_alternative<ByteFallback>(step)) continue;
    if (const std::optional<char> byte = byte_of_token(token)) return std::string(1, *byte);
  }
  return std::string(token);
}

void TokenDecoder::describe(std::string& out) const {
  const Cases described{
      [](const Spaced&) { return std::string("Spaced"); },
      [](const ByteLevel&) { return std::string("ByteLevel"); },
      [](const ByteFallback&) { return std::string("ByteFallback"); },
      [](const Fuse&) { return std::string("Fuse"); },
      [](const Strip& s) { return cat("Strip ", measured(s.character), " ", s.start, " ", s.stop); },
      [](const Replace& r) { return cat("Replace ", r.pattern.describe(), " ", measured(r.content)); },
      [](const Metaspace& m) { return cat("Metaspace ", measured(m.replacement), " ", int{m.prepends}); }};
  for (const Step& step : steps_) out += cat("decoder ", std::visit(described, step), "\n");
}

}  // namespace bascule::ref
