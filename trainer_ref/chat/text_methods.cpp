// Methods of texts that make texts.
#include <algorithm>

#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/trainer_ref/chat/unicode.h>
#include <bascule/transport/text.h>

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

absl::StatusOr<Value> to_upper(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  return Value::of(upper(self.text()));
}

absl::StatusOr<Value> to_lower(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_TRY(check_case(self.text()));
  return Value::of(lower(self.text()));
}

absl::StatusOr<Value> to_capitalized(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_TRY(check_case(self.text()));
  return Value::of(capitalized(self.text()));
}

// Python's own title(): each run of letters begins with a capital. (The filter knows words.)
absl::StatusOr<Value> to_title(Machine& machine, const Value& self, const Bound&) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  if (!is_ascii(self.text()))
    return unimplemented("title() of a text beyond ASCII is not done here; use the filter title");
  std::string text = self.text();
  bool inside = false;
  for (char& c : text) {
    c = (inside ? lower(std::string_view(&c, 1)) : upper(std::string_view(&c, 1))).front();
    inside = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
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

absl::StatusOr<Value> join(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const std::vector<Value> items, to_items(machine, *arguments.find(0)));
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) return invalid_argument("join: expected texts, found ", items[i].type());
    if (items[i].is_safe()) return unimplemented("join() of a text marked safe is not done here");
    if (i > 0) text += self.text();
    text += items[i].text();
    BASCULE_TRY(machine.charge((self.text().size() + items[i].text().size()) / 64 + 1));
  }
  BASCULE_TRY(machine.charge_bytes(text.size()));
  return Value::of(std::move(text));
}

template <bool at_end>
absl::StatusOr<Value> remove_affix(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_TRY(machine.charge_bytes(self.text().size()));
  BASCULE_ASSIGN(const auto affix, arguments.text(0));
  if (!affix) return invalid_argument("expected a text, found None");
  std::string_view text = self.text();
  if (at_end && text.ends_with(*affix)) text.remove_suffix(affix->size());
  if (!at_end && text.starts_with(*affix)) text.remove_prefix(affix->size());
  return Value::of(text);
}

enum class Where { kLeft, kRight, kCenter };
template <Where where>
absl::StatusOr<Value> justify(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto width, arguments.integer(0));
  BASCULE_ASSIGN(const auto fill, arguments.text(1));
  if (!width || (fill && count_code_points(*fill) != 1)) return invalid_argument("expected a width and one character");
  const std::int64_t missing = *width - count_code_points(self.text());
  if (missing <= 0) return self;
  const std::string with = fill.value_or(" ");
  BASCULE_TRY(machine.charge_bytes(static_cast<std::uint64_t>(missing) * with.size() + self.text().size()));
  // As CPython shares what is missing between both sides.
  const std::int64_t left = where == Where::kLeft    ? 0
                            : where == Where::kRight ? missing
                                                     : missing / 2 + (missing & *width & 1);
  std::string text;
  for (std::int64_t i = 0; i < left; ++i) text += with;
  text += self.text();
  for (std::int64_t i = left; i < missing; ++i) text += with;
  return Value::of(std::move(text));
}

absl::StatusOr<Value> zfill(Machine& machine, const Value& self, const Bound& arguments) {
  BASCULE_ASSIGN(const auto width, arguments.integer(0));
  if (!width) return invalid_argument("zfill: expected a width, found None");
  const std::int64_t missing = *width - count_code_points(self.text());
  if (missing <= 0) return self;
  BASCULE_TRY(machine.charge_bytes(static_cast<std::uint64_t>(missing) + self.text().size()));
  const bool has_sign = self.text().starts_with("-") || self.text().starts_with("+");
  std::string text = self.text();
  text.insert(has_sign ? 1 : 0, static_cast<std::size_t>(missing), '0');
  return Value::of(std::move(text));
}

}  // namespace

const std::vector<Method>& text_methods() {
  static const auto* table = new std::vector<Method>{
      {"strip", "/ characters?", strip<Side::kBoth>},
      {"lstrip", "/ characters?", strip<Side::kLeft>},
      {"rstrip", "/ characters?", strip<Side::kRight>},
      {"upper", "", to_upper},
      {"lower", "", to_lower},
      {"capitalize", "", to_capitalized},
      {"title", "", to_title},
      {"replace", "/ old new count?", replace},
      {"join", "/ items", join},
      {"removeprefix", "/ prefix", remove_affix<false>},
      {"removesuffix", "/ suffix", remove_affix<true>},
      {"ljust", "/ width fill?", justify<Where::kLeft>},
      {"rjust", "/ width fill?", justify<Where::kRight>},
      {"center", "/ width fill?", justify<Where::kCenter>},
      {"zfill", "/ width", zfill},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
