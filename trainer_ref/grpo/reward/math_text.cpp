#include <bascule/trainer_ref/grpo/reward/math_text.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/reward/math_chars.h>

namespace bascule::ref {
namespace {

bool is_alnum(char c) { return is_digit(c) || is_letter(c); }

using Replacement = std::pair<std::string_view, std::string_view>;

// Characters beyond ASCII. "$" stands for currency signs, which are dropped like $.
constexpr Replacement kCharacters[] = {{"\u2212", "-"},
                                       {"\u2013", "-"},
                                       {"\u00a0", " "},
                                       {"\u2009", "\\,"},
                                       {"\u202f", "\\,"},
                                       {"\u00d7", "*"},
                                       {"\u00b7", "*"},
                                       {"\u22c5", "*"},
                                       {"\u00f7", "/"},
                                       {"\u2248", "="},
                                       {"\u00b0", " degrees "},
                                       {"\u00bd", "\\frac{1}{2}"},
                                       {"\u00bc", "\\frac{1}{4}"},
                                       {"\u00be", "\\frac{3}{4}"},
                                       {"\u221a", "\\surd "},
                                       {"\u03c0", "\\pi "},
                                       {"\u221e", "\\infty "},
                                       {"\u00b1", "\\pm "},
                                       {"\u2264", "\\leq "},
                                       {"\u2265", "\\geq "},
                                       {"\u2260", "\\neq "},
                                       {"\u222a", "\\cup "},
                                       {"\u2229", "\\cap "},
                                       {"\u2208", "\\in "},
                                       {"\u2205", "\\emptyset "},
                                       {"\u20ac", "$"},
                                       {"\u00a3", "$"},
                                       {"\u00a5", "$"}};
constexpr Replacement kCommands[] = {{"frac", "\\frac"},
                                     {"dfrac", "\\frac"},
                                     {"tfrac", "\\frac"},
                                     {"cfrac", "\\frac"},
                                     {"times", "*"},
                                     {"cdot", "*"},
                                     {"div", "/"},
                                     {"approx", "="},
                                     {"quad", " "},
                                     {"qquad", " "},
                                     {"left", ""},
                                     {"right", ""},
                                     {"big", ""},
                                     {"Big", ""},
                                     {"bigl", ""},
                                     {"bigr", ""},
                                     {"Bigl", ""},
                                     {"Bigr", ""},
                                     {"bigg", ""},
                                     {"Bigg", ""},
                                     {"displaystyle", ""},
                                     {"textstyle", ""},
                                     {"limits", ""},
                                     {"lbrace", "{"},
                                     {"rbrace", "}"},
                                     {"le", "\\leq"},
                                     {"ge", "\\geq"},
                                     {"ne", "\\neq"},
                                     {"varnothing", "\\emptyset"}};
constexpr std::array<std::string_view, 16> kWrappers = {
    "text",   "textbf", "textit", "textrm", "texttt", "textnormal", "mathrm", "mathbf",
    "mathit", "mathsf", "mathtt", "mbox",   "boxed",  "fbox",       "emph",   "operatorname"};

class Writer {
 public:
  explicit Writer(std::string_view text) : text_(text) { out_.reserve(text.size()); }

  std::string write() && {
    while (i_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  char next(std::size_t ahead = 0) const { return i_ + ahead < text_.size() ? text_[i_ + ahead] : '\0'; }
  char last() const { return out_.empty() ? ' ' : out_.back(); }

  void step() {
    const char c = text_[i_++];
    switch (c) {
      case '\\': return command();
      case '{': return open(/*left_out=*/false);
      case '}': return close();
      case '$':
      case '`': return part();
      case '~':
      case '\t':
      case '\r': out_ += ' '; return;
      case '*':
        if (next() != '*') break;
        ++i_;
        return part();
      default:
        if ((static_cast<unsigned char>(c) & 0x80) != 0) return beyond_ascii();
    }
    out_ += c;
  }

  // Drops the character, so that "1$2" stays two numbers.
  void part() {
    if (is_alnum(last())) out_ += ' ';
  }
  // Drops a space before a group of three digits: 1\,234.
  void join() {
    const bool groups = is_digit(last()) && is_digit(next()) && is_digit(next(1)) && is_digit(next(2));
    if (!groups || is_digit(next(3))) out_ += ' ';
  }

  void open(bool left_out) {
    if (!left_out && next() == ',' && next(1) == '}') {  // 1{,}234
      out_ += ',';
      i_ += 2;
      return;
    }
    left_out_.push_back(left_out);
    out_ += left_out ? ' ' : '{';
  }
  void close() {
    const bool left_out = !left_out_.empty() && left_out_.back();
    if (!left_out_.empty()) left_out_.pop_back();
    out_ += left_out ? ' ' : '}';
  }

  void beyond_ascii() {
    for (const auto& [character, plain] : kCharacters) {
      if (text_.substr(i_ - 1, character.size()) != character) continue;
      i_ += character.size() - 1;
      if (plain == "$")
        part();
      else if (plain == "\\,")
        join();
      else
        out_ += plain;
      return;
    }
    out_ += text_[i_ - 1];
  }

  void command() {
    const std::size_t begin = i_;
    while (is_letter(next())) ++i_;
    if (i_ == begin) return sign();
    const std::string_view name = text_.substr(begin, i_ - begin);
    if (name == "circ" || name == "degree") return degrees();
    if (std::find(kWrappers.begin(), kWrappers.end(), name) != kWrappers.end()) {
      while (next() == ' ') ++i_;
      if (next() != '{') return part();
      ++i_;
      return open(/*left_out=*/true);
    }
    const auto* found =
        std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Replacement& r) { return r.first == name; });
    if (found != std::end(kCommands))
      out_ += found->second;
    else
      out_.append("\\").append(name);
  }

  // A backslash and one character that is not a letter.
  void sign() {
    if (i_ == text_.size()) return;
    const char c = text_[i_++];
    if (c == '$') return part();
    if (c == '!') return;  // a space of negative width: 1,\!234
    if (std::string_view(",;: ").find(c) != std::string_view::npos) return join();
    if (c == '\\') {  // a line of a matrix or a system of equations ends
      out_ += " ; ";
      return;
    }
    out_ += std::string_view("%{}#&_").find(c) != std::string_view::npos ? c : ' ';
  }

  void degrees() {  // 45^\circ, 45^{\circ}
    if (last() == '{' && out_.size() > 1 && out_[out_.size() - 2] == '^' && !left_out_.empty()) {
      out_.pop_back();
      left_out_.back() = true;
    }
    if (last() == '^') out_.pop_back();
    out_ += " degrees ";
  }

  const std::string_view text_;
  std::size_t i_ = 0;
  std::string out_;
  std::vector<bool> left_out_;  // for each open brace: whether it and its partner are dropped
};

}  // namespace

std::string plain_math(std::string_view text) { return Writer(text).write(); }

std::string with_powers(std::string_view text) {
  constexpr Replacement kRaised[] = {{"\u2070", "0"}, {"\u00b9", "1"}, {"\u00b2", "2"}, {"\u00b3", "3"},
                                     {"\u2074", "4"}, {"\u2075", "5"}, {"\u2076", "6"}, {"\u2077", "7"},
                                     {"\u2078", "8"}, {"\u2079", "9"}, {"\u207b", "-"}};
  std::string result;
  result.reserve(text.size());
  bool inside = false;  // an exponent
  for (std::size_t i = 0; i < text.size();) {
    const auto* raised = (static_cast<unsigned char>(text[i]) & 0x80) == 0
                             ? std::end(kRaised)
                             : std::find_if(std::begin(kRaised), std::end(kRaised), [&](const Replacement& each) {
                                 return text.substr(i, each.first.size()) == each.first;
                               });
    const bool is_raised = raised != std::end(kRaised);
    if (is_raised != inside) result += is_raised ? "^{" : "}";
    inside = is_raised;
    result += is_raised ? raised->second : text.substr(i, 1);
    i += is_raised ? raised->first.size() : 1;
  }
  return inside ? result + "}" : result;
}

}  // namespace bascule::ref
