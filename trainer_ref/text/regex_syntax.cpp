#include <bascule/trainer_ref/text/regex_syntax.h>

#include <algorithm>
#include <cctype>

#include <bascule/trainer_ref/text/part.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

// For the inside of a class. PCRE2's own \s also has U+180E, and its \w lacks marks.
constexpr std::string_view kSpace = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside of classes, Oniguruma uses a table of Latin-1 for characters below U+0100: ² ³ ¹ ¼ ½ ¾ are in it.
constexpr std::string_view kBareWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Translation {
 public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> run() {
    while (!rest().empty()) {
      const char next = rest().front();
      if (next == '\\') {
        BASCULE_TRY(escape(false));
      } else if (next == '[') {
        BASCULE_TRY(character_class());
      } else if (next == '(') {
        BASCULE_TRY(group());
      } else if (next == '{') {
        BASCULE_TRY(interval());
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }
  bool begins(std::string_view text) const { return rest().substr(0, text.size()) == text; }
  void copy(std::size_t bytes) {
    out_ += rest().substr(0, bytes);
    at_ += bytes;
  }
  absl::Status refuse(std::string_view what) const { return unread(cat("the regular expression ", what)); }

  absl::Status group() {
    if (!begins("(?")) return copy(1), absl::OkStatus();
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (begins(known)) return copy(known.size()), absl::OkStatus();
    }
    return refuse(cat("'", rest().substr(0, 4), "'"));
  }

  // {m,n}; a + after it is one more repeat to Oniguruma, and possessive to PCRE2.
  absl::Status interval() {
    const std::size_t end = rest().find('}');
    const std::string_view inside = rest().substr(0, end).substr(1);
    const bool counts = end != std::string_view::npos && !inside.empty() && inside.front() != ',' &&
                        std::all_of(inside.begin(), inside.end(), [](char c) {
                          return c == ',' || std::isdigit(static_cast<unsigned char>(c)) != 0;
                        });
    if (!counts) return refuse("'{' without counts");
    copy(end + 1);
    return begins("+") ? refuse("'{...}+'") : absl::OkStatus();
  }

  absl::Status character_class() {
    copy(begins("[^") ? 2 : 1);
    if (begins("]")) return refuse("'[]'");
    while (!begins("]")) {
      if (rest().empty()) return refuse("'[' without ']'");
      if (begins("[") || begins("&&")) return refuse(cat("'", rest().substr(0, 2), "' in a class"));
      if (begins("\\")) {
        BASCULE_TRY(escape(true));
      } else {
        copy(1);
      }
    }
    copy(1);
    return absl::OkStatus();
  }

  absl::Status escape(bool in_class) {
    if (rest().size() < 2) return refuse("'\\' at its end");
    const char kind = rest()[1];
    const auto put = [&](std::string_view members, bool negated) {
      out_ += in_class ? std::string(members) : cat(negated ? "[^" : "[", members, "]");
      at_ += 2;
      return absl::OkStatus();
    };
    switch (kind) {
      case 's': return put(kSpace, false);
      case 'w': return put(in_class ? kWord : kBareWord, false);
      case 'd': return put(R"(\p{Nd})", false);
      case 'S': return in_class ? refuse("'\\S' in a class") : put(kSpace, true);
      case 'W': return in_class ? refuse("'\\W' in a class") : put(kBareWord, true);
      case 'D': return in_class ? refuse("'\\D' in a class") : put(R"(\p{Nd})", true);
      case 'p':
      case 'P': return property();
      case 'x':
      case 'u': return code_point();
      case 'n':
      case 'r':
      case 't':
      case 'f': return copy(2), absl::OkStatus();
      case 'A':
      case 'z':
        if (!in_class) return copy(2), absl::OkStatus();
        break;
      default: break;
    }
    if (static_cast<unsigned char>(kind) < 0x80 && std::ispunct(static_cast<unsigned char>(kind)) == 0 && kind != ' ') {
      return refuse(cat("'\\", rest().substr(1, 1), "'"));
    }
    copy(2);
    return absl::OkStatus();
  }

  // \p{L} is a general category. \p{Han} is a script, which PCRE2 would extend by characters that several scripts
  // share.
  absl::Status property() {
    const std::size_t end = rest().find('}');
    if (rest().size() < 3 || rest()[2] != '{' || end == std::string_view::npos) return refuse("'\\p' without '{...}'");
    std::string_view name = rest().substr(3, end - 3);
    out_ += rest().substr(0, 3);
    if (!name.empty() && name.front() == '^') {
      out_ += '^';
      name.remove_prefix(1);
    }
    out_ += name.size() > 2 && name != "Alphabetic" ? cat("sc:", name, "}") : cat(name, "}");
    at_ += end + 1;
    return absl::OkStatus();
  }

  absl::Status code_point() {  // \x41, \x{1F600}, \u00e9
    const std::string_view digits = rest().substr(2);
    if (rest()[1] == 'x' && !digits.empty() && digits.front() == '{') {
      const std::size_t end = rest().find('}');
      if (end == std::string_view::npos) return refuse("'\\x{' without '}'");
      return copy(end + 1), absl::OkStatus();
    }
    const std::size_t count = rest()[1] == 'x' ? 2 : 4;
    const bool hex = digits.size() >= count &&
                     std::all_of(digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(count), is_hex);
    // \xE9 would be a byte, not a character.
    if (!hex || (count == 2 && digits.front() >= '8')) return refuse(cat("'", rest().substr(0, 2 + count), "'"));
    out_ += cat("\\x{", digits.substr(0, count), "}");
    at_ += 2 + count;
    return absl::OkStatus();
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> to_pcre2(std::string_view pattern) { return Translation(pattern).run(); }

}  // namespace bascule::ref
