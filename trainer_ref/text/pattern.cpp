#include <bascule/trainer_ref/text/pattern.h>

#include <bascule/trainer_ref/text/part.h>
#include <bascule/trainer_ref/text/regex_syntax.h>
#include <bascule/trainer_ref/text/unicode.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

absl::StatusOr<Pattern> Pattern::read(const nlohmann::json& value, std::string_view kind) {
  if (value.is_object() && value.size() == 1 && value.begin()->is_string()) {
    const auto& source = value.begin()->get_ref<const std::string&>();
    if (value.contains("Regex")) return regex(source);
    if (value.contains("String") && source.empty()) return unread(cat(kind, " of an empty String"));
    if (value.contains("String")) return text(source);
  }
  return invalid_argument(kind, R"(: expected a pattern {"String": ...} or {"Regex": ...}, found )", value.dump());
}

Pattern Pattern::text(std::string_view text) {
  Pattern pattern;
  pattern.source_ = text;
  return pattern;
}

absl::StatusOr<Pattern> Pattern::regex(std::string_view expression) {
  Pattern pattern;
  pattern.source_ = expression;
  BASCULE_ASSIGN(const std::string translated, to_pcre2(expression));
  BASCULE_ASSIGN(pattern.regex_, Regex::compile(translated));
  return pattern;
}

absl::Status Pattern::find(std::string_view text, Span span, std::vector<Segment>& segments) const {
  text = text.substr(span.begin, span.end - span.begin);
  std::size_t covered = 0;
  const auto found = [&](Span match) {
    if (match.begin > covered) segments.push_back({{span.begin + covered, span.begin + match.begin}, false});
    segments.push_back({{span.begin + match.begin, span.begin + match.end}, true});
    covered = match.end;
  };
  if (!regex_) {
    for (std::size_t at = text.find(source_); at != std::string_view::npos; at = text.find(source_, covered)) {
      found({at, at + source_.size()});
    }
  } else {
    Matcher matcher(*regex_);
    bool any = false;
    for (std::size_t from = 0; from <= text.size();) {
      BASCULE_ASSIGN(const std::optional<Span> match, matcher.next(text, from));
      if (!match) break;
      from = match->end;
      // An empty match right after the last one would recur forever.
      if (match->begin == match->end && any && match->end == covered) {
        if (from == text.size()) break;
        from += character_bytes(text[from]);
        continue;
      }
      any = true;
      found(*match);
    }
  }
  if (covered < text.size()) segments.push_back({{span.begin + covered, span.end}, false});
  return absl::OkStatus();
}

std::string_view Pattern::single_character() const {
  return !regex_ && source_.size() == character_bytes(source_.front()) ? std::string_view(source_) : std::string_view();
}

std::string Pattern::describe() const { return cat(regex_ ? "Regex " : "String ", measured(source_)); }

}  // namespace bascule::ref
