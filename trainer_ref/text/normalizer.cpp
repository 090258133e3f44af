#include <bascule/trainer_ref/text/normalizer.h>

#include <algorithm>
#include <array>
#include <utility>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {
    {{"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}}};

}  // namespace

absl::StatusOr<Normalizer> Normalizer::read(const nlohmann::json& part) {
  Normalizer normalizer;
  if (!part.is_null()) BASCULE_TRY(normalizer.add(part));
  return normalizer;
}

absl::Status Normalizer::add(const nlohmann::json& part) {
  BASCULE_ASSIGN(const std::string type, type_of(part, "normalizer"));
  for (const auto& [name, form] : kForms) {
    if (type == name) return steps_.emplace_back(form), absl::OkStatus();
  }
  absl::Status status;
  JsonKeys keys(part, cat("normalizer ", type), status);
  if (type == "Sequence") {
    BASCULE_ASSIGN(const nlohmann::json* list, list_of(part, "normalizers"));
    for (const nlohmann::json& each : *list) BASCULE_TRY(add(each));
  } else if (type == "Prepend") {
    Prepend prepend{keys.text("prepend", "")};
    if (prepend.text.empty() && status.ok()) return unread("normalizer Prepend of an empty text");
    steps_.emplace_back(std::move(prepend));
  } else if (type == "Replace") {
    BASCULE_ASSIGN(Pattern pattern, Pattern::read(part.value("pattern", nlohmann::json()), "normalizer Replace"));
    steps_.emplace_back(Replace{std::move(pattern), keys.text("content", "")});
  } else if (type == "Strip") {
    steps_.emplace_back(Strip{keys.flag("strip_left"), keys.flag("strip_right")});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else {
    return unread(cat("normalizer ", type));
  }
  return status;
}

absl::Status Normalizer::apply(Section& section) const {
  for (const Step& step : steps_) {
    BASCULE_TRY(std::visit([&](const auto& kind) { return apply(kind, section); }, step));
  }
  return absl::OkStatus();
}

absl::Status Normalizer::apply(NormalForm form, Section& section) {
  section.text = normalized(section.text, form);
  return absl::OkStatus();
}

absl::Status Normalizer::apply(const Prepend& step, Section& section) {
  if (!section.text.empty()) section.text.insert(0, step.text);
  return absl::OkStatus();
}

absl::Status Normalizer::apply(const Replace& step, Section& section) {
  std::vector<Segment> segments;
  BASCULE_TRY(step.pattern.find(section.text, {0, section.text.size()}, segments));
  std::string text;
  text.reserve(section.text.size());
  for (const auto& [span, is_match] : segments) {
    if (is_match) {
      text += step.content;
    } else {
      text.append(section.text, span.begin, span.end - span.begin);
    }
    if (text.empty() && span.end > 0) section.at_start = false;
  }
  section.text = std::move(text);
  return absl::OkStatus();
}

absl::Status Normalizer::apply(const Strip& step, Section& section) {
  std::string& text = section.text;
  while (step.right && !text.empty()) {
    const std::size_t last = last_character_at(text);
    if (!is_white_space(first_character(std::string_view(text).substr(last)))) break;
    text.resize(last);
  }
  std::size_t begin = 0;
  while (step.left && begin < text.size() && is_white_space(first_character(std::string_view(text).substr(begin)))) {
    begin += character_bytes(text[begin]);
  }
  if (begin > 0) section.at_start = false;
  text.erase(0, begin);
  return absl::OkStatus();
}

absl::Status Normalizer::apply(const ByteLevel&, Section& section) {
  std::string text;
  append_byte_level(text, section.text);
  section.text = std::move(text);
  return absl::OkStatus();
}

std::optional<std::size_t> Normalizer::most_shrinkage() const {
  // Unicode 14's largest is 4, of a mathematical digit in NFKC; NFC's is 3.5, of an iota with two accents.
  constexpr std::size_t kOfNormalForms = 4;
  std::size_t shrinks = 1;
  for (const Step& step : steps_) {
    if (std::holds_alternative<NormalForm>(step)) shrinks *= kOfNormalForms;
    if (std::holds_alternative<Strip>(step)) return std::nullopt;
    const auto* replace = std::get_if<Replace>(&step);
    if (replace != nullptr && (replace->pattern.single_character().empty() ||
                               replace->content.size() < replace->pattern.single_character().size()))
      return std::nullopt;
  }
  return shrinks;
}

bool Normalizer::writes_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<ByteLevel>(step); });
}

void Normalizer::describe(std::string& out) const {
  struct {
    std::string operator()(NormalForm form) const {
      return std::string(kForms.at(static_cast<std::size_t>(form)).first);
    }
    std::string operator()(const Prepend& step) const { return cat("Prepend ", measured(step.text)); }
    std::string operator()(const Replace& step) const {
      return cat("Replace ", step.pattern.describe(), " ", measured(step.content));
    }
    std::string operator()(const Strip& step) const { return cat("Strip ", int{step.left}, int{step.right}); }
    std::string operator()(const ByteLevel&) const { return "ByteLevel"; }
  } described;
  for (const Step& step : steps_) out += cat("normalizer ", std::visit(described, step), "\n");
}

}  // namespace bascule::ref
