// Methods of texts that search and split.
#include <algorithm>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/trainer_ref/chat/string_literal.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

namespace bascule::ref::jinja {
namespace {

// The bytes of text[start:stop], arguments `from` and `from` + 1; none where they enclose nothing, not even the empty
// text.
struct Part {
  std::string_view text;
  std::int64_t begin;  // code points before it
};
absl::StatusOr<std::optional<Part>> part_of(Machine& machine, std::string_view text, const Bound& arguments,
                                            std::size_t from) {
  BASCULE_TRY(machine.charge_bytes(text.size()));
  BASCULE_ASSIGN(const auto start, arguments.integer(from));
  BASCULE_ASSIGN(const auto stop, arguments.integer(from + 1));
  if (!start && !stop) return Part{text, 0};
  const auto offsets = code_point_offsets(text);
  const auto size = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto bounded = [&](std::int64_t i) { return i < 0 ? std::max<std::int64_t>(i + size, 0) : i; };
  const std::int64_t begin = bounded(start.value_or(0)), end = std::min(bounded(stop.value_or(size)), size);
  if (begin > end) return std::nullopt;
  const std::size_t first = offsets[static_cast<std::size_t>(begin)];
  return Part{text.substr(first, offsets[static_cast<std::size_t>(end)] - first), begin};
}

template <bool at_end>
absl::StatusOr<Value> has_affix(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto part, part_of(machine, self.text(), arguments, 1));
  const Value& affix = *arguments.find(0);
  const std::vector<Value> one = {affix};
  if (affix.is(Kind::kUndefined)) return affix.undefined_error();
  for (const Value& each : affix.is(Kind::kTuple) ? affix.items() : one) {
    BASCULE_TRY(machine.charge(1));
    if (!each.is(Kind::kText)) return invalid_argument("expected a text or a tuple of texts, found ", each.type());
    if (part && (at_end ? part->text.ends_with(each.text()) : part->text.starts_with(each.text()))) {
      return Value::of(true);
    }
  }
  return Value::of(false);
}

template <bool last, bool must_be_there>
absl::StatusOr<Value> find(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("expected a text to search for, found None");
  BASCULE_ASSIGN(const auto part, part_of(machine, self.text(), arguments, 1));
  const std::size_t at = !part ? std::string_view::npos : last ? part->text.rfind(*wanted) : part->text.find(*wanted);
  if (at != std::string_view::npos) return Value::of(part->begin + count_code_points(part->text.substr(0, at)));
  if (must_be_there) return invalid_argument("the text does not have ", text_repr(*wanted));
  return Value::of(std::int64_t{-1});
}

absl::StatusOr<Value> count(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("count: expected a text, found None");
  BASCULE_ASSIGN(const auto part, part_of(machine, self.text(), arguments, 1));
  if (!part) return Value::of(std::int64_t{0});
  if (wanted->empty()) return Value::of(count_code_points(part->text) + 1);
  std::int64_t number = 0;
  for (std::size_t at = 0; (at = part->text.find(*wanted, at)) != std::string_view::npos; at += wanted->size())
    ++number;
  return Value::of(number);
}

// split() or rsplit() by `separator`, at most `count` times; negative: no limit.
std::vector<std::string_view> split_by(std::string_view text, std::string_view separator, std::int64_t count,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  for (; count != 0; --count) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// The words of a text, between runs of whitespace.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const bool space = is_space(next_code_point(text, at));
    if (inside && space) words.push_back(text.substr(begin, here - begin));
    if (!inside && !space) begin = here;
    inside = !space;
  }
  if (inside) words.push_back(text.substr(begin));
  return words;
}

// split() or rsplit() by whitespace. What is behind the last split keeps the whitespace in it.
std::vector<std::string_view> split_words(std::string_view text, std::int64_t count, bool from_right) {
  std::vector<std::string_view> words = words_of(text);
  if (from_right) std::reverse(words.begin(), words.end());
  if (count < 0 || static_cast<std::int64_t>(words.size()) <= count) return words;
  const std::string_view next = words[static_cast<std::size_t>(count)];  // the first one that is not split off
  words.resize(static_cast<std::size_t>(count));
  const char* end = from_right ? next.data() + next.size() : next.data();
  const auto at = static_cast<std::size_t>(end - text.data());
  words.push_back(from_right ? text.substr(0, at) : text.substr(at));
  return words;
}

template <bool from_right>
absl::StatusOr<Value> split(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto separator, arguments.text(0));
  BASCULE_ASSIGN(const auto count, arguments.integer(1));
  if (separator && separator->empty()) return invalid_argument("split: the separator is empty");
  if (arguments.find(1) != nullptr && !count) return invalid_argument("split: expected a number, found None");
  auto parts = separator ? split_by(self.text(), *separator, count.value_or(-1), from_right)
                         : split_words(self.text(), count.value_or(-1), from_right);
  if (from_right) std::reverse(parts.begin(), parts.end());
  BASCULE_TRY(machine.charge(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::of(part));
  return Value::list(std::move(items));
}

absl::StatusOr<Value> splitlines(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  std::vector<Value> items;
  for (const std::string_view line : split_lines(self.text(), arguments.flag(0))) items.push_back(Value::of(line));
  BASCULE_TRY(machine.charge(items.size()));
  return Value::list(std::move(items));
}

template <bool last>
absl::StatusOr<Value> partition(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto separator, arguments.text(0));
  if (!separator || separator->empty()) return invalid_argument("partition: expected a text that is not empty");
  const std::string_view text = self.text();
  const std::size_t at = last ? text.rfind(*separator) : text.find(*separator);
  if (at != std::string_view::npos) {
    return Value::tuple(
        {Value::of(text.substr(0, at)), Value::of(*separator), Value::of(text.substr(at + separator->size()))});
  }
  return last ? Value::tuple({Value::of(""), Value::of(""), self}) : Value::tuple({self, Value::of(""), Value::of("")});
}

// isdigit() and so on: not empty, and `is` of each character. Beyond ASCII, only isspace() is known.
template <bool (*is)(char32_t)>
absl::StatusOr<Value> all_are(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (is != is_space && !is_ascii(self.text())) {
    return unimplemented("what kind of characters a text beyond ASCII has is not known here");
  }
  bool all = !self.text().empty();
  for (std::size_t at = 0; all && at < self.text().size();) all = is(next_code_point(self.text(), at));
  return Value::of(all);
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit(c); }

template <bool is_lower>
absl::StatusOr<Value> has_case(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const bool has, is_all_of_case(self.text(), is_lower));
  return Value::of(has);
}

}  // namespace

const std::vector<Method>& search_methods() {
  static const auto* table = new std::vector<Method>{
      {"startswith", "/ prefix start? stop?", has_affix<false>},
      {"endswith", "/ suffix start? stop?", has_affix<true>},
      {"find", "/ text start? stop?", find<false, false>},
      {"rfind", "/ text start? stop?", find<true, false>},
      {"index", "/ text start? stop?", find<false, true>},
      {"rindex", "/ text start? stop?", find<true, true>},
      {"count", "/ text start? stop?", count},
      {"split", "sep? maxsplit?", split<false>},
      {"rsplit", "sep? maxsplit?", split<true>},
      {"splitlines", "keepends?", splitlines},
      {"partition", "/ separator", partition<false>},
      {"rpartition", "/ separator", partition<true>},
      {"isspace", "", all_are<is_space>},
      {"isdigit", "", all_are<is_digit>},
      {"isalpha", "", all_are<is_letter>},
      {"isalnum", "", all_are<is_letter_or_digit>},
      {"islower", "", has_case<true>},
      {"isupper", "", has_case<false>},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
