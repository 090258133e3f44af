#include <bascule/trainer_ref/text/pre_tokenizer.h>

#include <algorithm>
#include <array>
#include <utility>

#include <bascule/trainer_ref/json/json_keys.h>
#include <bascule/trainer_ref/text/byte_level.h>
#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// GPT-2's pattern, by which ByteLevel splits.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Whitespace's \w is Rust's, with the two joiners.
constexpr std::string_view kWords = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+)";
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";

constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {
    {{"Removed", SplitBehavior::kRemoved},
     {"Isolated", SplitBehavior::kIsolated},
     {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
     {"MergedWithNext", SplitBehavior::kMergedWithNext},
     {"Contiguous", SplitBehavior::kContiguous}}};

absl::StatusOr<SplitBehavior> behavior_of(const nlohmann::json& part, std::string_view otherwise) {
  const nlohmann::json word = part.value("behavior", nlohmann::json(otherwise));
  for (const auto& [name, behavior] : kBehaviors) {
    if (word == name) return behavior;
  }
  return unread(cat("a pre_tokenizer's behavior ", word.dump()));
}

// Rewrites each pre-token by `write(out, pre_token)`.
template <typename Write>
void rewrite(PreTokens& pre_tokens, Write write) {
  std::string text;
  text.reserve(pre_tokens.text.size() + pre_tokens.text.size() / 2);
  for (PreToken& pre_token : pre_tokens.list) {
    const std::size_t begin = text.size();
    write(text, pre_token);
    pre_token.span = {begin, text.size()};
  }
  pre_tokens.text = std::move(text);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::read(const nlohmann::json& part) {
  PreTokenizer pre_tokenizer;
  if (!part.is_null()) BASCULE_TRY(pre_tokenizer.add(part));
  return pre_tokenizer;
}

absl::Status PreTokenizer::add(const nlohmann::json& part) {
  BASCULE_ASSIGN(const std::string type, type_of(part, "pre_tokenizer"));
  if (type == "Split") return add_split(part);
  if (type == "ByteLevel") return add_byte_level(part);
  if (type == "Metaspace") return add_metaspace(part);
  if (type == "WhitespaceSplit") return add_regex(R"(\s+)", SplitBehavior::kRemoved);
  if (type == "Whitespace") {
    const std::string others = cat("[^", kWords.substr(1, kWords.size() - 3), R"(\s]+)");
    return add_regex(cat(kWords, "|", others), SplitBehavior::kRemoved, /*inverted=*/true);
  }
  if (type == "Punctuation") {
    BASCULE_ASSIGN(const SplitBehavior behavior, behavior_of(part, "Isolated"));
    return add_regex(kPunctuation, behavior);
  }
  if (type == "Digits") {
    absl::Status status;
    const bool individual = JsonKeys(part, "pre_tokenizer Digits", status).flag("individual_digits");
    BASCULE_TRY(status);
    return add_regex(R"(\p{N})", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type != "Sequence") return unread(cat("pre_tokenizer ", type));
  BASCULE_ASSIGN(const nlohmann::json* list, list_of(part, "pretokenizers"));
  for (const nlohmann::json& each : *list) BASCULE_TRY(add(each));
  return absl::OkStatus();
}

absl::Status PreTokenizer::add_regex(std::string_view expression, SplitBehavior behavior, bool inverted) {
  BASCULE_ASSIGN(Pattern pattern, Pattern::regex(expression));
  steps_.emplace_back(Split{std::move(pattern), behavior, inverted});
  return absl::OkStatus();
}

absl::Status PreTokenizer::add_split(const nlohmann::json& part) {
  BASCULE_ASSIGN(Pattern pattern, Pattern::read(part.value("pattern", nlohmann::json()), "pre_tokenizer Split"));
  BASCULE_ASSIGN(const SplitBehavior behavior, behavior_of(part, ""));
  absl::Status status;
  const bool inverted = JsonKeys(part, "pre_tokenizer Split", status).flag("invert");
  steps_.emplace_back(Split{std::move(pattern), behavior, inverted});
  return status;
}

absl::Status PreTokenizer::add_byte_level(const nlohmann::json& part) {
  absl::Status status;
  JsonKeys keys(part, "pre_tokenizer ByteLevel", status);
  if (keys.flag("add_prefix_space")) steps_.emplace_back(Prepend{" ", Scheme::kAlways});
  if (keys.find("use_regex") == nullptr || keys.flag("use_regex")) {
    BASCULE_TRY(add_regex(kGpt2, SplitBehavior::kIsolated));
  }
  steps_.emplace_back(Bytes{});
  return status;
}

absl::Status PreTokenizer::add_metaspace(const nlohmann::json& part) {
  absl::Status status;
  JsonKeys keys(part, "pre_tokenizer Metaspace", status);
  const std::string replacement = keys.text("replacement", "\u2581");
  const std::string scheme = keys.text(
      "prepend_scheme", keys.find("add_prefix_space") == nullptr || keys.flag("add_prefix_space") ? "always" : "never");
  const bool splits = keys.find("split") == nullptr || keys.flag("split");
  BASCULE_TRY(status);
  if (replacement.empty()) return invalid_argument("pre_tokenizer Metaspace: expected a replacement, found none");
  steps_.emplace_back(ReplaceSpaces{replacement});
  if (scheme == "always" || scheme == "first") {
    steps_.emplace_back(Prepend{replacement, scheme == "always" ? Scheme::kAlways : Scheme::kFirst});
  } else if (scheme != "never") {
    return unread(cat("pre_tokenizer Metaspace with prepend_scheme '", scheme, "'"));
  }
  if (splits) steps_.emplace_back(Split{Pattern::text(replacement), SplitBehavior::kMergedWithNext, false});
  return absl::OkStatus();
}

absl::Status PreTokenizer::apply(PreTokens& pre_tokens) const {
  for (const Step& step : steps_) {
    BASCULE_TRY(std::visit([&](const auto& kind) { return apply(kind, pre_tokens); }, step));
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::apply(const Split& step, PreTokens& pre_tokens) {
  return split(pre_tokens, step.pattern, step.behavior, step.inverted);
}

absl::Status PreTokenizer::apply(const Prepend& step, PreTokens& pre_tokens) {
  rewrite(pre_tokens, [&](std::string& out, const PreToken& pre_token) {
    const bool asked = step.scheme == Scheme::kAlways || (step.scheme == Scheme::kFirst && pre_token.at_start);
    if (asked && !pre_tokens.of(pre_token).starts_with(step.text)) out += step.text;
    out += pre_tokens.of(pre_token);
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::apply(const ReplaceSpaces& step, PreTokens& pre_tokens) {
  rewrite(pre_tokens, [&](std::string& out, const PreToken& pre_token) {
    for (const char c : pre_tokens.of(pre_token)) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status PreTokenizer::apply(const Bytes&, PreTokens& pre_tokens) {
  rewrite(pre_tokens,
          [&](std::string& out, const PreToken& pre_token) { append_byte_level(out, pre_tokens.of(pre_token)); });
  return absl::OkStatus();
}

bool PreTokenizer::removes_text() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* split = std::get_if<Split>(&step);
    return split != nullptr && split->behavior == SplitBehavior::kRemoved;
  });
}

bool PreTokenizer::writes_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<Bytes>(step); });
}

void PreTokenizer::describe(std::string& out) const {
  struct {
    std::string operator()(const Split& step) const {
      return cat("Split ", step.pattern.describe(), " ", kBehaviors.at(static_cast<std::size_t>(step.behavior)).first,
                 " ", int{step.inverted});
    }
    std::string operator()(const Prepend& step) const {
      return cat("Prepend ", measured(step.text), " ", static_cast<int>(step.scheme));
    }
    std::string operator()(const ReplaceSpaces& step) const {
      return cat("ReplaceSpaces ", measured(step.replacement));
    }
    std::string operator()(const Bytes&) const { return "Bytes"; }
  } described;
  for (const Step& step : steps_) out += cat("pre_tokenizer ", std::visit(described, step), "\n");
}

}  // namespace bascule::ref
