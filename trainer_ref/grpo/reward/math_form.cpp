#include <bascule/trainer_ref/grpo/reward/math_form.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/reward/math_chars.h>

namespace bascule::ref {
namespace {

constexpr std::size_t kLongest = 4096;
constexpr int kDeepest = 20;

char lower_of(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }
bool opens(char c) { return c == '{' || c == '(' || c == '['; }
bool closes(char c) { return c == '}' || c == ')' || c == ']'; }
bool is_alphanumeric(char c) { return is_letter(c) || is_digit(c); }

std::string_view without_blanks_around(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// The place of the bracket that closes the one at `begin`, of whatever kind: [0, 1) is an interval. Returns npos if
// none does.
std::size_t partner_of(std::string_view text, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (opens(text[i])) ++depth;
    if (closes(text[i]) && --depth == 0) return i;
  }
  return std::string_view::npos;
}

bool is_wrapped(std::string_view text) {
  return text.size() > 1 && opens(text.front()) && partner_of(text, 0) == text.size() - 1;
}

// The parts of a text between `separator`s that are in no brackets.
std::vector<std::string_view> parts_between(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (opens(text[i])) ++depth;
    if (closes(text[i])) --depth;
    if (text[i] != separator || depth != 0) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// Whether a sum or a relation is in no brackets: then the text is not one product.
bool is_sum(std::string_view form) {
  const std::string_view signs = "+-=<>,";
  return std::any_of(signs.begin(), signs.end(), [&](char c) { return parts_between(form, c).size() > 1; });
}

// Whether the form is one number, letter, command with its arguments, or group, perhaps with an exponent.
bool is_one_factor(std::string_view form) {
  if (form.empty()) return false;
  std::size_t end = 1;
  if (is_digit(form.front())) {
    while (end < form.size() && (is_digit(form[end]) || form[end] == '.')) ++end;
  } else if (form.front() == '\\') {
    while (end < form.size() && is_letter(form[end])) ++end;
    while (end < form.size() && (form[end] == '{' || form[end] == '[')) {
      const std::size_t close = partner_of(form, end);
      if (close == std::string_view::npos) return false;
      end = close + 1;
    }
  } else if (form.front() == '(') {
    const std::size_t close = partner_of(form, 0);
    if (close == std::string_view::npos) return false;
    end = close + 1;
  } else if (!is_letter(form.front())) {
    return false;
  }
  if (form.substr(end).starts_with("^{")) {
    const std::size_t close = partner_of(form, end + 1);
    end = close == std::string_view::npos ? end : close + 1;
  }
  return end == form.size();
}

std::string_view without_parentheses(std::string_view form) {
  return is_wrapped(form) && form.front() == '(' && form.back() == ')' ? form.substr(1, form.size() - 2) : form;
}

// A quotient of two factors that is written with a slash, as \frac.
std::string with_fraction(std::string form) {
  const std::vector<std::string_view> parts = parts_between(form, '/');
  if (parts.size() != 2) return form;
  std::string_view over = parts[0];
  const std::string sign = over.starts_with('-') ? "-" : "";
  over.remove_prefix(sign.size());
  if (over.empty() || is_sum(over) || !is_one_factor(parts[1])) return form;
  return sign + "\\frac{" + std::string(without_parentheses(over)) + "}{" + std::string(without_parentheses(parts[1])) +
         "}";
}

class FormWriter {
 public:
  // `depth` counts braces and nested commands.
  FormWriter(std::string_view text, int depth) : text_(text), depth_(depth) {}

  std::string write() && {
    while (i_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  char next() const { return i_ < text_.size() ? text_[i_] : '\0'; }
  char last() const { return out_.empty() ? '\0' : out_.back(); }
  void skip_blanks() {
    while (is_blank(next())) ++i_;
  }

  void step() {
    const char c = text_[i_];
    if (is_blank(c)) {
      skip_blanks();
      if (is_digit(last()) && is_digit(next())) out_ += ' ';  // two numbers stay two
    } else if (is_letter(c)) {
      word();
    } else if (c == '\\') {
      command();
    } else if (c == '^' || c == '_') {
      ++i_;
      out_ += c;
      out_ += "{" + argument(/*takes_number=*/true) + "}";
    } else if (c == '{') {
      out_ += "{" + argument(false) + "}";
    } else if (c == '*') {
      ++i_;
      skip_blanks();
      const bool is_plain = is_digit(last()) && is_digit(next());
      const bool is_product = is_alphanumeric(next()) || next() == '\\' || next() == '(';
      if (is_plain || !is_product || out_.empty()) out_ += '*';
    } else if (c == '+' && (out_.empty() || std::string_view("([{,=").find(last()) != std::string_view::npos)) {
      ++i_;
    } else {
      ++i_;
      out_ += c;
    }
  }

  void word() {
    const std::size_t begin = i_;
    while (is_letter(next())) ++i_;
    std::string word(text_.substr(begin, i_ - begin));
    std::transform(word.begin(), word.end(), word.begin(), lower_of);
    if (word == "sqrt" && next() == '(') return root(argument(true));
    if (word == "pi") return name("\\pi");
    if (word == "infinity") return name("\\infty");
    name(word);
  }

  // A word or a command, kept apart from a command before it.
  void name(std::string_view text) {
    const std::size_t begin = out_.find_last_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    const bool follows_command = begin != std::string::npos && out_[begin] == '\\' && begin + 1 < out_.size();
    if (follows_command && is_letter(text.front())) out_ += ' ';
    out_ += text;
  }

  void root(const std::string& of, const std::string& degree = "") { out_ += "\\sqrt" + degree + "{" + of + "}"; }

  void command() {
    const std::size_t begin = i_++;
    while (is_letter(next())) ++i_;
    const std::string_view command = text_.substr(begin, i_ - begin);
    if (command == "\\frac") {
      std::string over = argument(false);
      const std::string under = argument(false);
      if (out_.empty() && over.starts_with('-') && !is_sum(std::string_view(over).substr(1))) {
        out_ += '-';
        over.erase(0, 1);
      }
      out_ += "\\frac{" + over + "}{" + under + "}";
    } else if (command == "\\sqrt") {
      skip_blanks();
      std::string degree;
      if (next() == '[') {
        const std::size_t close = std::min(text_.find(']', i_), text_.size() - 1);
        degree = text_.substr(i_, close - i_ + 1);
        degree.erase(std::remove_if(degree.begin(), degree.end(), is_blank), degree.end());
        i_ = close + 1;
      }
      root(argument(false), degree);
    } else if (command == "\\surd") {  // the sign √, whose argument is a whole number or group
      root(argument(true));
    } else {
      name(command);
    }
  }

  // The form of what follows: a group, a command with its arguments, or one character. With `takes_number` it may also
  // be a number of several digits, with a sign, or a group in parentheses, as people write it: x^10, √(2).
  std::string argument(bool takes_number) {
    skip_blanks();
    const std::size_t begin = i_;
    const char c = next();
    if (c == '{' || (takes_number && c == '(')) {
      const std::size_t close = partner_of(text_, i_);
      if (close == std::string_view::npos) {
        i_ = text_.size();
        return std::string(text_.substr(begin + 1));
      }
      i_ = close + 1;
      return FormWriter(text_.substr(begin + 1, close - begin - 1), depth_ + 1).write();
    }
    if (c == '\\') {
      if (depth_ >= kDeepest) return std::string(text_.substr(std::exchange(i_, text_.size())));
      FormWriter one(text_.substr(i_), depth_ + 1);
      one.command();
      i_ += one.i_;
      return std::move(one.out_);
    }
    if (takes_number && (c == '-' || c == '+')) ++i_;
    if (takes_number && is_digit(next())) {
      while (is_digit(next())) ++i_;
    } else if (i_ < text_.size()) {
      ++i_;
    }
    std::string written(text_.substr(begin, i_ - begin));
    std::transform(written.begin(), written.end(), written.begin(), lower_of);
    return written;
  }

  const std::string_view text_;
  const int depth_;
  std::size_t i_ = 0;
  std::string out_;
};

// For texts that are too long or deep: only blanks and case.
std::string simple_form(std::string_view text) {
  std::string form;
  form.reserve(text.size());
  for (const char c : text)
    if (!is_blank(c)) form += lower_of(c);
  return form;
}

std::string form_of(std::string_view text, const ElementValue& value_of_element, int depth);

std::string form_of_list(std::string_view text, bool is_set, const ElementValue& value_of_element, int depth) {
  std::vector<std::string> elements;
  for (const std::string_view part : parts_between(text, ',')) {
    const std::string_view element = without_blanks_around(part);
    const std::optional<std::string> value = value_of_element(element);
    elements.push_back(value ? *value : form_of(element, value_of_element, depth + 1));
  }
  if (is_set) {
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }
  std::string form;
  for (std::size_t i = 0; i < elements.size(); ++i) form += (i > 0 ? "," : "") + elements[i];
  return form;
}

std::string form_of(std::string_view text, const ElementValue& value_of_element, int depth) {
  text = without_blanks_around(text);
  if (depth < kDeepest && is_wrapped(text) && parts_between(text.substr(1, text.size() - 2), ',').size() > 1) {
    const bool is_set = text.front() == '{';
    return text.front() + form_of_list(text.substr(1, text.size() - 2), is_set, value_of_element, depth) + text.back();
  }
  if (depth < kDeepest && parts_between(text, ',').size() > 1)
    return form_of_list(text, /*is_set=*/false, value_of_element, depth);
  return with_fraction(FormWriter(text, 0).write());
}

}  // namespace

std::string math_form(std::string_view text, const ElementValue& value_of_element) {
  int depth = 0, deepest = 0;
  for (const char c : text) {
    if (opens(c)) deepest = std::max(deepest, ++depth);
    if (closes(c)) --depth;
  }
  if (text.size() > kLongest || deepest > kDeepest) return simple_form(text);
  return form_of(text, value_of_element, 0);
}

}  // namespace bascule::ref
