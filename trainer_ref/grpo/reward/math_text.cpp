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
constexpr std::array<Replacement, 16> kCharacters = {{{"\u2212", "-"},
                                                      {"\u2013", "-"},
                                                      {"\u00a0", " "},
                                                      {"\u2009", " "},
                                                      {"\u202f", " "},
                                                      {"\u00d7", "*"},
                                                      {"\u00b7", "*"},
                                                      {"\u22c5", "*"},
                                                      {"\u2248", "="},
                                                      {"\u00b0", " degrees "},
                                                      {"\u00bd", "\\frac{1}{2}"},
                                                      {"\u00bc", "\\frac{1}{4}"},
                                                      {"\u00be", "\\frac{3}{4}"},
                                                      {"\u20ac", "$"},
                                                      {"\u00a3", "$"},
                                                      {"\u00a5", "$"}}};
constexpr std::array<Replacement, 15> kCommands = {{{"frac", "\\frac"},
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
                                                    {"displaystyle", ""},
                                                    {"textstyle", ""},
                                                    {"limits", ""}}};
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
  // Drops the character between two digits: 1\,234.
  void join() {
    if (!is_digit(last()) || !is_digit(next())) out_ += ' ';
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
        std::find_if(kCommands.begin(), kCommands.end(), [&](const Replacement& r) { return r.first == name; });
    if (found != kCommands.end())
      out_ += found->second;
    else
      out_.append("\\").append(name);
  }

  // A backslash and one character that is not a letter.
  void sign() {
    if (i_ == text_.size()) return;
    const char c = text_[i_++];
    if (c == '$') return part();
    if (c == ',' || c == '!') return join();
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

}  // namespace bascule::ref
