// The tests that may follow `is`.
#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/functions.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/operators.h>
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
      {"integer", "", is_kind<Kind::kInteger>},
      {"float", "", is_kind<Kind::kFloat>},
      {"number", "", is_kind<Kind::kBool, Kind::kInteger, Kind::kFloat>},
      {"string", "", is_kind<Kind::kText>},
      {"mapping", "", is_kind<Kind::kDict>},
      {"sequence", "", sequence},
      {"iterable", "", iterable},
      {"odd", "", odd},
      {"even", "", even},
      {"in", "seq", in},
      {"eq", "/ other", equal_to<true>},
      {"equalto", "/ other", equal_to<true>},
      {"==", "/ other", equal_to<true>},
      {"ne", "/ other", equal_to<false>},
      {"!=", "/ other", equal_to<false>},
  };
  return *table;
}

}  // namespace bascule::ref::jinja
