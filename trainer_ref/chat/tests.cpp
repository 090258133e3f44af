// What stands behind `is`.
#include <cmath>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/trainer_ref/chat/strings.h>
#include <bascule/transport/text.h>

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
absl::StatusOr<bool> divisible(Machine& machine, const Value& value, const Bound& arguments) {
  return leaves(machine, value, *arguments.find(0), 0);
}

absl::StatusOr<bool> is_defined(Machine&, const Value& value, const Bound&) { return !value.is(Kind::kUndefined); }
absl::StatusOr<bool> iterable(Machine&, const Value& value, const Bound&) { return is_iterable(value); }

// Jinja2 asks for a length and for subscripts, which a dict has too.
absl::StatusOr<bool> sequence(Machine&, const Value& value, const Bound&) {
  return value.is(Kind::kText) || value.is_sequence() || value.is(Kind::kDict) || value.is(Kind::kRange) ||
         value.is(Kind::kUndefined);
}

template <bool is_lower>
absl::StatusOr<bool> has_case(Machine& machine, const Value& value, const Bound&) {
  BASCULE_ASSIGN(const std::string text, to_text(machine, value));
  return is_all_of_case(text, is_lower);
}

absl::StatusOr<bool> same_as(Machine&, const Value& value, const Bound& arguments) {
  const Value& other = *arguments.find(0);
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::kNone)) return true;
  if (value.is(Kind::kBool)) return value.flag() == other.flag();
  if (value.place() != nullptr && !value.is(Kind::kTuple)) return value.place() == other.place();
  return unimplemented("sameas: whether two values of type ", value.type(), " are one object is not known here");
}

template <bool meant>
absl::StatusOr<bool> equal_to(Machine& machine, const Value& value, const Bound& arguments) {
  BASCULE_ASSIGN(const bool same, equal(machine, value, *arguments.find(0)));
  return same == meant;
}

absl::StatusOr<bool> less_than(Machine& machine, const Value& value, const Bound& arguments) {
  return less(machine, value, *arguments.find(0));
}
absl::StatusOr<bool> greater(Machine& machine, const Value& value, const Bound& arguments) {
  return less(machine, *arguments.find(0), value);
}
absl::StatusOr<bool> at_most(Machine& machine, const Value& value, const Bound& arguments) {
  return less_or_equal(machine, value, *arguments.find(0));
}
absl::StatusOr<bool> at_least(Machine& machine, const Value& value, const Bound& arguments) {
  return less_or_equal(machine, *arguments.find(0), value);
}

absl::StatusOr<bool> in(Machine& machine, const Value& value, const Bound& arguments) {
  return contains(machine, *arguments.find(0), value);
}

// Whether Jinja2 has such a filter or test; one that is not here would be a wrong answer either way.
template <bool (*known)(std::string_view), bool (*of_jinja)(std::string_view)>
absl::StatusOr<bool> exists(Machine& machine, const Value& value, const Bound&) {
  BASCULE_TRY(check_hashable(machine, value));
  if (!value.is(Kind::kText)) return false;
  if (of_jinja(value.text()) && !known(value.text())) return unimplemented("'", value.text(), "' is not known here");
  return known(value.text());
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
      {"integer", "", is_kind<Kind::kInteger>},
      {"float", "", is_kind<Kind::kFloat>},
      {"number", "", is_kind<Kind::kBool, Kind::kInteger, Kind::kFloat>},
      {"string", "", is_kind<Kind::kText>},
      {"mapping", "", is_kind<Kind::kDict>},
      {"sequence", "", sequence},
      {"iterable", "", iterable},
      {"callable", "", is_kind<Kind::kMacro, Kind::kFunction, Kind::kMethod, Kind::kUndefined, Kind::kLoop>},
      {"odd", "", odd},
      {"even", "", even},
      {"divisibleby", "num", divisible},
      {"lower", "", has_case<true>},
      {"upper", "", has_case<false>},
      {"sameas", "other", same_as},
      {"in", "seq", in},
      {"filter", "", exists<is_filter, is_filter_of_jinja>},
      {"test", "", exists<is_test, is_test_of_jinja>},
      {"eq", "/ other", equal_to<true>},
      {"equalto", "/ other", equal_to<true>},
      {"==", "/ other", equal_to<true>},
      {"ne", "/ other", equal_to<false>},
      {"!=", "/ other", equal_to<false>},
      {"lt", "/ other", less_than},
      {"lessthan", "/ other", less_than},
      {"<", "/ other", less_than},
      {"le", "/ other", at_most},
      {"<=", "/ other", at_most},
      {"gt", "/ other", greater},
      {"greaterthan", "/ other", greater},
      {">", "/ other", greater},
      {"ge", "/ other", at_least},
      {">=", "/ other", at_least},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
