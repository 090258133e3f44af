#include <bascule/trainer_ref/grpo/reward/math_answer.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/grpo/reward/math_chars.h>
#include <bascule/trainer_ref/grpo/reward/math_form.h>
#include <bascule/trainer_ref/grpo/reward/math_text.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kHashes = "####";

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string_view strip(std::string_view text, std::string_view also_behind = "") {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && (is_blank(text.back()) || also_behind.find(text.back()) != std::string_view::npos))
    text.remove_suffix(1);
  return text;
}

bool closes_group(char c) { return c == ')' || c == '}' || c == ']'; }

std::string_view line_of(std::string_view text) { return text.substr(0, text.find('\n')); }

// Returns the content of the last box, as written. Takes one pass: a box counts when its brace closes, and of two boxes
// the one that opens later wins.
std::optional<std::string_view> last_boxed(std::string_view text) {
  constexpr std::array<std::string_view, 2> kBoxes = {"\\boxed", "\\fbox"};
  struct Brace {
    std::size_t inside = 0;
    bool is_box = false;
  };
  std::vector<Brace> open;
  std::optional<std::string_view> last;
  std::size_t last_begin = 0;
  bool behind_box = false;  // only blanks since
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      const auto* box = std::find_if(kBoxes.begin(), kBoxes.end(), [&](std::string_view name) {
        const std::size_t end = i + name.size();
        return text.substr(i, name.size()) == name && !(end < text.size() && is_letter(text[end]));
      });
      behind_box = box != kBoxes.end();
      i += behind_box ? box->size() - 1 : 1;  // \{ is not a brace
    } else if (c == '{') {
      open.push_back({.inside = i + 1, .is_box = std::exchange(behind_box, false)});
    } else if (c == '}' && !open.empty()) {
      const Brace brace = open.back();
      open.pop_back();
      const std::string_view content = text.substr(brace.inside, i - brace.inside);
      if (brace.is_box && (!last || brace.inside > last_begin) && !strip(content).empty()) {
        last = content;
        last_begin = brace.inside;
      }
    } else if (!is_blank(c)) {
      behind_box = false;
    }
  }
  return last;
}

// Returns the rest of the line after the last ####, or the next line that is not blank.
std::optional<std::string_view> behind_hashes(std::string_view text) {
  const std::size_t hashes = text.rfind(kHashes);
  if (hashes == std::string_view::npos) return std::nullopt;
  const std::string_view line = strip(line_of(strip(text.substr(hashes + kHashes.size()))));
  return line.empty() ? std::nullopt : std::optional(line);
}

// Whether `text`, which follows a number, is only a unit: words, "%", "km/h", "cm^2", "m²", "(in hours)".
bool is_unit(std::string_view text) {
  if (!text.empty() && is_letter(text.front()) && !(text.size() > 1 && is_letter(text[1]))) return false;  // 5x
  const std::string_view word = strip(text);
  const bool is_letter_alone = !word.empty() && is_letter(word.front()) && !(word.size() > 1 && is_letter(word[1]));
  constexpr std::string_view kUnits = "mgshlLKCFNJWVAT";  // other letters are variables: 5 x, 5 i
  if (is_letter_alone && kUnits.find(word.front()) == std::string_view::npos) return false;
  bool any = false;  // a word or a sign that a power may follow
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool letter_follows = i + 1 < text.size() && is_letter(text[i + 1]);
    if (is_letter(c) || (static_cast<unsigned char>(c) & 0x80) != 0 || c == '%') {
      any = true;
    } else if (c == '^' && any) {
      if (i + 1 < text.size() && text[i + 1] == '{') ++i;
      while (i + 1 < text.size() && (is_digit(text[i + 1]) || text[i + 1] == '-')) ++i;
    } else if ((c == '-' || c == '/') && (any || c == '/') &&
               (letter_follows || (c == '/' && i + 1 < text.size() && is_blank(text[i + 1])))) {
      continue;
    } else if (!is_blank(c) && c != '.' && c != '(' && c != ')' && c != '}' && c != '\'') {
      return false;
    }
  }
  return true;
}

// "x = 5" is 5, but "x = 5, y = 7", "x = 5 or x = 7" and "x <= 5" are not numbers. "x \in [1, 2]" is the interval.
std::string_view behind_equals(std::string_view text) {
  constexpr std::string_view kIn = "\\in";
  if (const std::size_t in = text.find(kIn); in != std::string_view::npos) {
    const std::string_view rest = text.substr(in + kIn.size());
    const std::string_view variable = strip(text.substr(0, in));
    if (variable.size() == 1 && is_letter(variable.front()) && !rest.empty() && !is_letter(rest.front()))
      return strip(rest);
  }
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos) return text;
  if (equals > 0 && std::string_view("<>!").find(text[equals - 1]) != std::string_view::npos) return text;
  const std::string_view before = text.substr(0, equals);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool thousands = before[i] == ',' && i > 0 && is_digit(before[i - 1]) && is_digit(before[i + 1]);
    if ((before[i] == ',' && !thousands) || before[i] == ';') return text;
  }
  for (const std::string_view word : {" or ", " and "})
    if (before.find(word) != std::string_view::npos) return text;
  return strip(text.substr(equals + 1));
}

// A number as text, for one without a value.
std::string digits_form(std::string_view text) {
  std::string form;
  form.reserve(text.size());
  for (const char c : text)
    if (!is_blank(c) && c != ',') form += lower(c);
  return form;
}

MathAnswer answer_of(std::string_view text, const NumberText& number) {
  return {.is_number = true,
          .value = value_of(number),
          .text = digits_form(text.substr(number.begin, number.end - number.begin))};
}

std::optional<MathAnswer> whole_number(std::string_view text) {
  const std::optional<NumberText> number = read_number(text, 0);
  if (!number || !is_unit(text.substr(number->end))) return std::nullopt;
  return answer_of(text, *number);
}

std::optional<std::string> value_of_element(std::string_view element) {
  const std::optional<MathAnswer> number = whole_number(element);
  return number && number->value ? std::optional(number->value->str()) : std::nullopt;
}

// An exclamation mark after a digit or bracket is a factorial.
std::string_view without_end_of_sentence(std::string_view text) {
  std::string_view rest = strip(text, ".,;:");
  while (rest.ends_with('!') && rest.size() > 1 && !is_digit(rest[rest.size() - 2]) &&
         !closes_group(rest[rest.size() - 2]))
    rest = strip(rest.substr(0, rest.size() - 1), ".,;:");
  return rest;
}

bool same(const MathAnswer& a, const MathAnswer& b) {
  return a.value && b.value ? *a.value == *b.value : a.text == b.text;
}

// Returns the text after the last "answer is" or "answer:" and blanks, or "" if there is neither. `plain` must come
// from plain_math().
std::string_view behind_answer_is(std::string_view plain) {
  std::string lowered(plain);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(), lower);
  std::size_t last = 0;
  for (const std::string_view words : {"answer is", "answer:", "answer ="})
    if (const std::size_t found = lowered.rfind(words); found != std::string::npos)
      last = std::max(last, found + words.size());
  if (last == 0) return {};
  const std::string_view rest = plain.substr(last);
  return rest.substr(std::min(rest.find_first_not_of(": \t\r\n="), rest.size()));
}

// Returns the text after the = of an equation such as "2 + 3 = 5, since …", else all of it.
std::string_view behind_equation(std::string_view line) {
  std::size_t result = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      while (i + 1 < line.size() && is_letter(line[i + 1])) ++i;
    } else if (is_letter(line[i])) {
      if (i + 1 < line.size() && is_letter(line[i + 1])) break;  // a word: the equation is over
    } else if (line[i] == '=') {
      result = i + 1;
    }
  }
  return line.substr(result);
}

std::string_view sentence_of(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i)
    if (line[i] == '.' && (i + 1 == line.size() || is_blank(line[i + 1]))) return line.substr(0, i);
  return line;
}

}  // namespace

MathAnswer read_math_answer(std::string_view text) {
  const std::string plain = with_powers(plain_math(text));
  std::string_view rest = behind_equals(without_end_of_sentence(plain));
  if (rest.size() > 1 && (rest.front() == '{' || rest.front() == '(')) {
    const char close = rest.front() == '{' ? '}' : ')';
    const std::string_view inside = rest.substr(1, rest.size() - 2);
    if (rest.back() == close && inside.find_first_of(",(){}") == std::string_view::npos) rest = strip(inside);
  }
  if (std::optional<MathAnswer> number = whole_number(rest)) return *std::move(number);
  return {.text = math_form(rest, value_of_element)};
}

MathAnswer expected_math_answer(std::string_view column) {
  if (const std::optional<std::string_view> boxed = last_boxed(column)) return read_math_answer(*boxed);
  return read_math_answer(behind_hashes(column).value_or(column));
}

bool has_math_answer(std::string_view completion, const MathAnswer& expected) {
  if (const std::optional<std::string_view> boxed = last_boxed(completion))
    return same(expected, read_math_answer(*boxed));
  if (const std::optional<std::string_view> line = behind_hashes(completion)) {
    const MathAnswer answer = read_math_answer(*line);
    if (answer.is_number || !expected.is_number || !is_letter(line->front())) return same(expected, answer);
  }
  const std::string plain = with_powers(plain_math(completion));
  const std::string_view conclusion = line_of(behind_answer_is(plain));
  if (!expected.is_number)
    return same(expected, read_math_answer(conclusion.empty() ? completion : sentence_of(conclusion)));
  const std::string_view result = behind_equation(conclusion);
  if (const auto first = first_number(result, NumberForms::kAll)) return same(expected, answer_of(result, *first));
  const std::optional<NumberText> last = last_number(plain, NumberForms::kAll);
  return last && same(expected, answer_of(plain, *last));
}

}  // namespace bascule::ref
