// Methods of texts.
#include <algorithm>
#include <optional>

#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

template <Side side>
absl::StatusOr<Value> strip(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto characters, arguments.text(0));
  if (!characters) return Value::of(stripped(self.text(), side));
  BASCULE_TRY(machine.charge(characters->size() * (self.text().size() / 64 + 1)));
  return Value::of(stripped(self.text(), *characters, side));
}

template <Case wanted>
absl::StatusOr<Value> to_case(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(std::string text, in_case(self.text(), wanted));
  return Value::of(std::move(text));
}

// Python's own title(): each run of letters begins with a capital. (The filter knows words.)
absl::StatusOr<Value> to_title(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (!is_ascii(self.text()))
    return unimplemented("title() of a text beyond ASCII is not supported; use the filter title");
  std::string text = self.text();
  bool inside = false;
  for (char& c : text) {
    const bool is_lower = c >= 'a' && c <= 'z', is_upper = c >= 'A' && c <= 'Z';
    if (inside ? is_upper : is_lower) c = static_cast<char>(c ^ 0x20);
    inside = is_lower || is_upper;
  }
  return Value::of(std::move(text));
}

absl::StatusOr<Value> replace(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto from, arguments.text(0));
  BASCULE_ASSIGN(const auto to, arguments.text(1));
  BASCULE_ASSIGN(const auto count, arguments.integer(2));
  if (!from || !to) return invalid_argument("replace: expected texts, found None");
  if (arguments.find(2) != nullptr && !count) return invalid_argument("replace: expected a count, found None");
  BASCULE_ASSIGN(std::string text, replaced(machine, self.text(), *from, *to, count.value_or(-1)));
  return Value::of(std::move(text));
}

absl::StatusOr<Value> join_texts(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, *arguments.find(0)));
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) return invalid_argument("join: expected texts, found ", items[i].type());
    if (items[i].is_safe()) return unimplemented("join() of a text marked safe is not supported");
    if (i > 0) text += self.text();
    text += items[i].text();
    BASCULE_TRY(machine.charge((self.text().size() + items[i].text().size()) / 64 + 1));
  }
  BASCULE_TRY(machine.charge_bytes(text.size()));
  return Value::of(std::move(text));
}

// The part of a text from code point `start` to before `stop`, which are arguments 1 and 2, as Python's slices count.
// Returns nullopt if `start` lies beyond the end or `stop`: then not even an empty text is found.
struct Part {
  std::string_view text;
  std::int64_t start = 0;
};
absl::StatusOr<std::optional<Part>> part_of(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto from, arguments.integer(1));
  BASCULE_ASSIGN(const auto to, arguments.integer(2));
  if (!from && !to) return Part{self.text()};
  const auto offsets = code_point_offsets(self.text());
  const auto length = static_cast<std::int64_t>(offsets.size()) - 1;
  const auto bounded = [&](std::int64_t place) {
    return place < 0 ? std::max<std::int64_t>(place + length, 0) : place;
  };
  const std::int64_t start = bounded(from.value_or(0)), stop = std::min(bounded(to.value_or(length)), length);
  if (start > stop) return std::nullopt;
  const std::size_t begin = offsets[static_cast<std::size_t>(start)], end = offsets[static_cast<std::size_t>(stop)];
  return Part{std::string_view(self.text()).substr(begin, end - begin), start};
}

template <bool at_end>
absl::StatusOr<Value> has_affix(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const std::optional<Part> part, part_of(machine, self, arguments));
  const Value& affix = *arguments.find(0);
  const std::vector<Value> one = {affix};
  if (affix.is(Kind::kUndefined)) return affix.undefined_error();
  for (const Value& each : affix.is(Kind::kTuple) ? affix.items() : one) {
    BASCULE_TRY(machine.charge(1));
    if (!each.is(Kind::kText)) return invalid_argument("expected a text or a tuple of texts, found ", each.type());
    if (part && (at_end ? part->text.ends_with(each.text()) : part->text.starts_with(each.text())))
      return Value::of(true);
  }
  return Value::of(false);
}

// find(), rfind(), index() and rindex(); the last two raise an error where the others return -1.
template <bool from_right, bool must_be_there>
absl::StatusOr<Value> find(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("expected a text to search for, found None");
  BASCULE_ASSIGN(const std::optional<Part> part, part_of(machine, self, arguments));
  const std::size_t at = !part        ? std::string_view::npos
                         : from_right ? part->text.rfind(*wanted)
                                      : part->text.find(*wanted);
  if (at != std::string_view::npos) return Value::of(part->start + count_code_points(part->text.substr(0, at)));
  if (must_be_there) return invalid_argument("the text does not contain '", *wanted, "'");
  return Value::of(std::int64_t{-1});
}

absl::StatusOr<Value> count(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto wanted, arguments.text(0));
  if (!wanted) return invalid_argument("count: expected a text, found None");
  BASCULE_ASSIGN(const std::optional<Part> part, part_of(machine, self, arguments));
  if (!part) return Value::of(std::int64_t{0});
  if (wanted->empty()) return Value::of(count_code_points(part->text) + 1);
  std::int64_t number = 0;
  for (std::size_t at = 0; (at = part->text.find(*wanted, at)) != std::string_view::npos; at += wanted->size())
    ++number;
  return Value::of(number);
}

// split() and rsplit(), at most `count` times; a negative count means no limit. The parts are in the text's order.
std::vector<std::string_view> split_by(std::string_view text, std::string_view separator, std::int64_t count,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  for (; count != 0; --count) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view behind = text.substr(at + separator.size());
    parts.push_back(from_right ? behind : text.substr(0, at));
    text = from_right ? text.substr(0, at) : behind;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

// The words of a text, between runs of whitespace. After `count` words, the rest is one more.
std::vector<std::string_view> words_of(std::string_view text, std::int64_t count, bool from_right) {
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
  if (count < 0 || static_cast<std::uint64_t>(count) >= words.size()) return words;
  const auto whole = static_cast<std::size_t>(count), last = words.size() - 1;
  const auto offset = [&](std::string_view word) { return static_cast<std::size_t>(word.data() - text.data()); };
  if (from_right) {
    const std::string_view word = words[last - whole];
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(last - whole));
    words.front() = stripped(text.substr(0, offset(word) + word.size()), Side::kRight);
  } else {
    words.resize(whole + 1);
    words.back() = text.substr(offset(words.back()));
  }
  return words;
}

template <bool from_right>
absl::StatusOr<Value> split(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto separator, arguments.text(0));
  BASCULE_ASSIGN(const auto count, arguments.integer(1));
  if (separator && separator->empty()) return invalid_argument("split: the separator is empty");
  if (arguments.find(1) != nullptr && !count) return invalid_argument("split: expected a number, found None");
  const auto parts = separator ? split_by(self.text(), *separator, count.value_or(-1), from_right)
                               : words_of(self.text(), count.value_or(-1), from_right);
  BASCULE_TRY(machine.charge(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::of(part));
  return Value::list(std::move(items));
}

absl::StatusOr<Value> lines(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  const std::string_view text = self.text();
  const std::vector<std::string_view> parts = split_lines(text);
  BASCULE_TRY(machine.charge(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const char* next = i + 1 < parts.size() ? parts[i + 1].data() : text.data() + text.size();
    items.push_back(Value::of(arguments.flag(0)
                                  ? std::string_view(parts[i].data(), static_cast<std::size_t>(next - parts[i].data()))
                                  : parts[i]));
  }
  return Value::list(std::move(items));
}

template <bool from_right>
absl::StatusOr<Value> partition(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto separator, arguments.text(0));
  if (!separator || separator->empty()) return invalid_argument("partition: expected a separator");
  const std::string_view text = self.text();
  const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
  if (at == std::string_view::npos)
    return from_right ? Value::tuple({Value::of(""), Value::of(""), self})
                      : Value::tuple({self, Value::of(""), Value::of("")});
  return Value::tuple(
      {Value::of(text.substr(0, at)), Value::of(*separator), Value::of(text.substr(at + separator->size()))});
}

template <bool at_end>
absl::StatusOr<Value> without_affix(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto affix, arguments.text(0));
  if (!affix) return invalid_argument("expected a text to remove, found None");
  std::string_view text = self.text();
  if (at_end && text.ends_with(*affix)) text.remove_suffix(affix->size());
  if (!at_end && text.starts_with(*affix)) text.remove_prefix(affix->size());
  return Value::of(text);
}

// ljust(), rjust() and center(); `side` is where the text stands.
template <Side side>
absl::StatusOr<Value> justify(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto width, arguments.integer(0));
  BASCULE_ASSIGN(const auto fill, arguments.text(1));
  if (!width) return invalid_argument("expected a width, found None");
  if (arguments.find(1) != nullptr && (!fill || count_code_points(*fill) != 1))
    return invalid_argument("expected one character to fill with");
  const std::int64_t missing = *width - count_code_points(self.text());
  if (missing <= 0) return self;
  const auto total = static_cast<std::uint64_t>(missing);
  const std::string character = fill.value_or(" ");
  BASCULE_TRY(machine.charge_bytes(self.text().size() + total * character.size()));
  const std::uint64_t odd = total & static_cast<std::uint64_t>(*width) & 1U;  // as CPython rounds
  const std::uint64_t left = side == Side::kLeft ? 0 : side == Side::kRight ? total : total / 2 + odd;
  std::string text;
  for (std::uint64_t i = 0; i < left; ++i) text += character;
  text += self.text();
  for (std::uint64_t i = left; i < total; ++i) text += character;
  return Value::of(std::move(text));
}

absl::StatusOr<Value> fill_with_zeros(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto width, arguments.integer(0));
  if (!width) return invalid_argument("zfill: expected a width, found None");
  const std::int64_t missing = *width - count_code_points(self.text());
  if (missing <= 0) return self;
  BASCULE_TRY(machine.charge_bytes(self.text().size() + static_cast<std::uint64_t>(missing)));
  std::string text = self.text();
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  return Value::of(text.insert(has_sign ? 1 : 0, static_cast<std::size_t>(missing), '0'));
}

bool is_upper_letter(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_any_letter(char c) { return is_upper_letter(c) || is_lower_letter(c); }
bool is_any_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) { return is_any_letter(c) || is_any_digit(c); }

// isdigit(), isalpha() and the like: whether the text is not empty and has such characters only.
template <bool (*is_one)(char)>
absl::StatusOr<Value> has_only(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (!is_ascii(self.text())) return unimplemented("the kinds of characters beyond ASCII are not known here");
  return Value::of(!self.text().empty() && std::all_of(self.text().begin(), self.text().end(), is_one));
}

// isupper() and islower(): whether there are such letters, and none of the other case.
template <bool (*is_one)(char), bool (*is_other)(char)>
absl::StatusOr<Value> has_case(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (!is_ascii(self.text())) return unimplemented("the kinds of characters beyond ASCII are not known here");
  const std::string& text = self.text();
  return Value::of(std::any_of(text.begin(), text.end(), is_one) && std::none_of(text.begin(), text.end(), is_other));
}

absl::StatusOr<Value> has_only_space(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  return Value::of(!self.text().empty() && stripped(self.text(), Side::kBoth).empty());
}

absl::StatusOr<Value> has_only_ascii(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  return Value::of(is_ascii(self.text()));
}

}  // namespace

const std::vector<Method>& text_methods() {
  static const auto* table = new std::vector<Method>{
      {"strip", "/ characters?", strip<Side::kBoth>},
      {"lstrip", "/ characters?", strip<Side::kLeft>},
      {"rstrip", "/ characters?", strip<Side::kRight>},
      {"upper", "", to_case<Case::kUpper>},
      {"lower", "", to_case<Case::kLower>},
      {"capitalize", "", to_case<Case::kCapitalized>},
      {"title", "", to_title},
      {"replace", "/ old new count?", replace},
      {"join", "/ items", join_texts},
      {"format", "*", nullptr},
      {"startswith", "/ prefix start? stop?", has_affix<false>},
      {"endswith", "/ suffix start? stop?", has_affix<true>},
      {"removeprefix", "/ prefix", without_affix<false>},
      {"removesuffix", "/ suffix", without_affix<true>},
      {"find", "/ text start? stop?", find<false, false>},
      {"rfind", "/ text start? stop?", find<true, false>},
      {"index", "/ text start? stop?", find<false, true>},
      {"rindex", "/ text start? stop?", find<true, true>},
      {"count", "/ text start? stop?", count},
      {"split", "sep? maxsplit?", split<false>},
      {"rsplit", "sep? maxsplit?", split<true>},
      {"splitlines", "keepends?", lines},
      {"partition", "/ sep", partition<false>},
      {"rpartition", "/ sep", partition<true>},
      {"ljust", "/ width fillchar?", justify<Side::kLeft>},
      {"rjust", "/ width fillchar?", justify<Side::kRight>},
      {"center", "/ width fillchar?", justify<Side::kBoth>},
      {"zfill", "/ width", fill_with_zeros},
      {"isdigit", "", has_only<is_any_digit>},
      {"isdecimal", "", has_only<is_any_digit>},
      {"isnumeric", "", has_only<is_any_digit>},
      {"isalpha", "", has_only<is_any_letter>},
      {"isalnum", "", has_only<is_alphanumeric>},
      {"isupper", "", has_case<is_upper_letter, is_lower_letter>},
      {"islower", "", has_case<is_lower_letter, is_upper_letter>},
      {"isspace", "", has_only_space},
      {"isascii", "", has_only_ascii},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
