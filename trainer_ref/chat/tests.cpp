// The tests that may follow `is`.
#include <algorithm>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

template <Kind... kinds>
absl::StatusOr<bool> is_kind(Machine&, const Value& value, const Bound&) {
  return (value.is(kinds) || ...);
}

template <bool meant>
absl::StatusOr<bool> is_flag(Machine&, const Value& value, const Bound&) {
  return value.is(Kind::kBool) && value.flag() == meant;
}

absl::StatusOr<bool> leaves(Machine& machine, const Value& value, const Value& divisor, double remainder) {
  BASCULE_ASSIGN(const Value rest, compute(machine, Operator::kModulo, value, divisor));
  return equal(machine, rest, Value::of(remainder));
}
absl::StatusOr<bool> odd(Machine& machine, const Value& value, const Bound&) {
  return leaves(machine, value, Value::of(std::int64_t{2}), 1);
}
absl::StatusOr<bool> even(Machine& machine, const Value& value, const Bound&) {
  return leaves(machine, value, Value::of(std::int64_t{2}), 0);
}
absl::StatusOr<bool> is_defined(Machine&, const Value& value, const Bound&) { return !value.is(Kind::kUndefined); }
absl::StatusOr<bool> iterable(Machine&, const Value& value, const Bound&) { return is_iterable(value); }

// Jinja2 tests for a length and for subscripts, which dicts also have.
absl::StatusOr<bool> sequence(Machine&, const Value& value, const Bound&) {
  return value.is(Kind::kText) || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kRange) ||
         value.is(Kind::kUndefined);
}

template <bool meant>
absl::StatusOr<bool> equal_to(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const bool same, equal(machine, value, *arguments.find(0)));
  return same == meant;
}

template <bool swapped, bool or_equal>
absl::StatusOr<bool> compares(Machine& machine, const Value& value, const Bound& arguments) {
  const Value& other = *arguments.find(0);
  if (or_equal) return swapped ? less_or_equal(machine, other, value) : less_or_equal(machine, value, other);
  return swapped ? less(machine, other, value) : less(machine, value, other);
}

absl::StatusOr<bool> divisible_by(Machine& machine, const Value& value, const Bound& arguments) {
  return leaves(machine, value, *arguments.find(0), 0);
}

// `is`, which tells objects apart that are equal: known here only for constants and for values of different kinds.
absl::StatusOr<bool> same_as(Machine&, const Value& value, const Bound& arguments) {
  const Value& other = *arguments.find(0);
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::kNone)) return true;
  if (value.is(Kind::kBool)) return value.flag() == other.flag();
  if (value.place() != nullptr && !value.is(Kind::kTuple)) return value.place() == other.place();
  return unimplemented("sameas: whether two values of the type ", value.type(), " are one is not known here");
}

template <Case wanted>
absl::StatusOr<bool> is_case(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, to_text(machine, value));
  if (!is_ascii(text)) return unimplemented("upper and lower are not known of a text beyond ASCII");
  const auto has = [&](char first, char last) {
    return std::any_of(text.begin(), text.end(), [&](char c) { return c >= first && c <= last; });
  };
  return wanted == Case::kUpper ? has('A', 'Z') && !has('a', 'z') : has('a', 'z') && !has('A', 'Z');
}

absl::StatusOr<bool> in(Machine& machine, const Value& value, const Bound& arguments) {
  return contains(machine, *arguments.find(0), value);
}

}  // namespace

const std::vector<Test>& tests() {
  static const auto* table = new std::vector<Test>{
      {"defined", "", is_defined},
      {"undefined", "", is_kind<Kind::kUndefined>},
      {"none", "", is_kind<Kind::kNone>},
      {"boolean", "", is_kind<Kind::kBool>},
      {"true", "", is_flag<true>},
      {"false", "", is_flag<false>},
      {"integer", "", is_kind<Kind::kInteger, Kind::kBigInteger>},
      {"float", "", is_kind<Kind::kFloat>},
      {"number", "", is_kind<Kind::kBool, Kind::kInteger, Kind::kBigInteger, Kind::kFloat>},
      {"string", "", is_kind<Kind::kText>},
      {"mapping", "", is_kind<Kind::kDict>},
      {"sequence", "", sequence},
      {"iterable", "", iterable},
      {"odd", "", odd},
      {"even", "", even},
      {"in", "seq", in},
      {"divisibleby", "num", divisible_by},
      {"lower", "", is_case<Case::kLower>},
      {"upper", "", is_case<Case::kUpper>},
      {"sameas", "other", same_as},
      {"callable", "",
       is_kind<Kind::kMacro, Kind::kFunction, Kind::kMethod, Kind::kLoop, Kind::kUndefined>},  // as Python
      {"eq", "/ other", equal_to<true>},
      {"equalto", "/ other", equal_to<true>},
      {"==", "/ other", equal_to<true>},
      {"ne", "/ other", equal_to<false>},
      {"!=", "/ other", equal_to<false>},
      {"lt", "/ other", compares<false, false>},
      {"lessthan", "/ other", compares<false, false>},
      {"<", "/ other", compares<false, false>},
      {"gt", "/ other", compares<true, false>},
      {"greaterthan", "/ other", compares<true, false>},
      {">", "/ other", compares<true, false>},
      {"le", "/ other", compares<false, true>},
      {"<=", "/ other", compares<false, true>},
      {"ge", "/ other", compares<true, true>},
      {">=", "/ other", compares<true, true>},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
