#include <bascule/trainer_ref/model/module_pattern.h>

#include <optional>

#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr char kAnyCharacter = '\0';

// The text that a simple key matches; nullopt if the key needs a regular expression.
std::optional<std::string> literal_of(std::string_view key) {
  std::string text;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool is_escaped = key[i] == '\\' && i + 1 < key.size() && (key[i + 1] == '.' || key[i + 1] == '-');
    if (is_escaped) {
      text += key[++i];
    } else if (key[i] == '.') {
      text += kAnyCharacter;
    } else if (std::isalnum(static_cast<unsigned char>(key[i])) != 0 || key[i] == '_' || key[i] == '-') {
      text += key[i];
    } else {
      return std::nullopt;
    }
  }
  return text;
}

bool equals(std::string_view text, std::string_view literal) {
  if (text.size() != literal.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (literal[i] != kAnyCharacter && literal[i] != text[i]) return false;
  return true;
}

// Reads the class that begins at `begin`, and returns where it ends. nullopt: Python reads it in another way.
std::optional<std::size_t> end_of_class(std::string_view expression, std::size_t begin) {
  std::size_t i = begin + 1;
  if (i < expression.size() && expression[i] == '^') ++i;
  if (i < expression.size() && expression[i] == ']') return std::nullopt;  // a member to Python
  for (; i < expression.size() && expression[i] != ']'; ++i) {
    if (expression[i] == '[') return std::nullopt;  // such as [:alpha:]
    if (expression[i] == '\\') ++i;
  }
  return i;
}

// Constructs that mean one thing to Python and another to std::regex, or that take exponential time: a lookahead within
// a lookahead begins a search for each state of the outer one.
bool is_refused(std::string_view expression) {
  constexpr std::string_view kSameEscapes = "bBdDsSwWnrtfv", kRepeats = "*+?";
  const auto repeats = [&](std::size_t i) { return i < expression.size() && kRepeats.find(expression[i]) < 3; };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] == '\\') {
      if (++i == expression.size()) break;
      const auto escaped = static_cast<unsigned char>(expression[i]);
      if (std::isalnum(escaped) != 0 && kSameEscapes.find(expression[i]) == std::string_view::npos) return true;
    } else if (expression[i] == '[') {
      const std::optional<std::size_t> end = end_of_class(expression, i);
      if (!end) return true;
      i = *end;
    } else if (expression[i] == '(') {
      if (expression.substr(i + 1, 1) == "?" && expression.substr(i + 1, 2) != "?:") return true;
      if (expression.substr(i + 1, 1) == "?") ++i;
    } else if (repeats(i)) {
      if (i + 1 < expression.size() && expression[i + 1] == '?') ++i;  // as few as possible
      if (repeats(i + 1)) return true;                                 // possessive, or an error
    }
  }
  return false;
}

absl::StatusOr<std::shared_ptr<const std::regex>> compiled(const std::string& expression, const std::string& around) {
  constexpr std::size_t kMostBytes = 1000;
  const auto refused = [&](std::string_view why) {
    return unimplemented("the regular expression \"", expression.substr(0, 200), "\" is not supported here (", why,
                         "); expected names of modules, groups, alternatives, classes, *, + and ?");
  };
  if (is_refused(expression)) return refused("it has an escape, class, group or repetition that only Python has");
  // std::regex recurses over its states: these bounds keep that within any thread's stack.
  if (expression.size() > kMostBytes) return refused(cat("it has more than ", kMostBytes, " characters"));
  if (expression.find('{') != std::string::npos) return refused("it has a counted repetition");
  auto flags = std::regex::ECMAScript | std::regex::optimize;
#ifdef __GLIBCXX__
  flags |= std::regex_constants::__polynomial;  // no expression takes exponential time; it refuses back references
#endif
  try {
    const std::regex alone(expression, flags);  // "a)|(b" is none, although it is one within a group
    return std::make_shared<const std::regex>(around + "(?:" + expression + ")", flags);
  } catch (const std::regex_error&) {
    return invalid_argument(
        "expected names of modules, or a regular expression as \".*[.](q_proj|v_proj)\", found \"",
        expression.substr(0, 200),
        "\", which is none: close each bracket, and let each *, + and ? follow what it repeats, as in \".*\"");
  }
}

}  // namespace

absl::StatusOr<ModulePattern> ModulePattern::of_end(const std::string& expression) {
  ModulePattern pattern;
  pattern.is_anchored_ = expression.starts_with('^');
  if (const auto literal = literal_of(std::string_view(expression).substr(pattern.is_anchored_ ? 1 : 0)); literal) {
    pattern.literal_ = *literal;
    return pattern;
  }
  BASCULE_ASSIGN(pattern.regex_, compiled(expression, "(?:.*\\.)?"));
  return pattern;
}

absl::StatusOr<ModulePattern> ModulePattern::of_whole(const std::string& expression) {
  ModulePattern pattern;
  BASCULE_ASSIGN(pattern.regex_, compiled(expression, ""));
  return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
  if (regex_) return std::regex_match(module.begin(), module.end(), *regex_);
  if (is_anchored_ || module.size() <= literal_.size()) return equals(module, literal_);
  const std::size_t begin = module.size() - literal_.size();
  return module[begin - 1] == '.' && equals(module.substr(begin), literal_);
}

}  // namespace bascule::ref
