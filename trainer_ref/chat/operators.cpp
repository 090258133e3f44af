#include <bascule/trainer_ref/chat/operators.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/percent.h>
#include <bascule/trainer_ref/chat/print.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

std::string_view sign(Operator operation) {
  static constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<int>(operation)];
}

absl::Status too_large(Operator operation) {
  return unimplemented("the result of ", sign(operation),
                       " or an operand needs more than 64 bits, which is not supported");
}

absl::Status unsupported(Operator operation, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is(Kind::kUndefined)) return side->undefined_error();
  }
  if (left.is(Kind::kBigInteger) || right.is(Kind::kBigInteger)) return too_large(operation);
  if (left.is(Kind::kView) || right.is(Kind::kView)) {
    return unimplemented(sign(operation), " between ", left.type(), " and ", right.type(), " is not supported here");
  }
  return invalid_argument("'", sign(operation), "' is not supported between ", left.type(), " and ", right.type());
}

std::int64_t floor_divide(std::int64_t left, std::int64_t right) {
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<Value> power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return invalid_argument("0 cannot be raised to a negative power");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return too_large(Operator::kPower);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(Operator::kPower);
  }
  return Value::of(result);
}

absl::StatusOr<Value> compute_integers(Operator operation, std::int64_t left, std::int64_t right) {
  const bool divides =
      operation == Operator::kDivide || operation == Operator::kFloorDivide || operation == Operator::kModulo;
  if (divides && right == 0) return invalid_argument("division by zero");
  if (divides && left == INT64_MIN && right == -1) return too_large(operation);
  std::int64_t result = 0;
  switch (operation) {
    case Operator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return too_large(operation);
      return Value::of(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return too_large(operation);
      return Value::of(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return too_large(operation);
      return Value::of(result);
    case Operator::kDivide:  // a long double holds every 64-bit integer; one rounding to a double follows
      return Value::of(static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right)));
    case Operator::kFloorDivide: return Value::of(floor_divide(left, right));
    case Operator::kModulo: return Value::of(left - floor_divide(left, right) * right);
    case Operator::kPower: return power(left, right);
  }
  return too_large(operation);
}

absl::StatusOr<Value> compute_floats(Operator operation, double left, double right) {
  const bool divides =
      operation == Operator::kDivide || operation == Operator::kFloorDivide || operation == Operator::kModulo;
  if (divides && right == 0) return invalid_argument("division by zero");
  if (operation == Operator::kPower) {
    if (left == 0 && right < 0) return invalid_argument("0 cannot be raised to a negative power");
    if (left < 0 && std::floor(right) != right) return unimplemented("complex numbers are not supported");
    const double result = std::pow(left, right);
    if (std::isinf(result) && std::isfinite(left) && std::isfinite(right)) {
      return invalid_argument("the result of ** is too large for a float");
    }
    return Value::of(result);
  }
  switch (operation) {
    case Operator::kAdd: return Value::of(left + right);
    case Operator::kSubtract: return Value::of(left - right);
    case Operator::kMultiply: return Value::of(left * right);
    case Operator::kDivide: return Value::of(left / right);
    default: break;
  }
  // As CPython does it: the remainder has the sign of the divisor, and the quotient is a whole number.
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (right < 0) != (remainder < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (operation == Operator::kModulo) return Value::of(remainder == 0 ? std::copysign(0.0, right) : remainder);
  if (quotient == 0) return Value::of(std::copysign(0.0, left / right));
  const double whole = std::floor(quotient);
  return Value::of(quotient - whole > 0.5 ? whole + 1 : whole);
}

absl::StatusOr<Value> repeat(Machine& machine, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  const auto count = static_cast<std::uint64_t>(times);
  if (value.is(Kind::kText)) {
    const std::uint64_t size = value.text().size();
    if (size != 0 && count > UINT64_MAX / size / 2) return machine.charge_bytes(UINT64_MAX);
    BASCULE_TRY(machine.charge_bytes(size * count));
    std::string text;
    text.reserve(size * count);
    for (std::uint64_t i = 0; i < count && size > 0; ++i) text += value.text();
    return Value::of(std::move(text), value.is_safe());
  }
  const std::uint64_t size = value.items().size();
  if (size != 0 && count > UINT64_MAX / size / 2) return machine.charge(UINT64_MAX / 2);
  BASCULE_TRY(machine.charge(size * count));
  std::vector<Value> items;
  items.reserve(size * count);
  for (std::uint64_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

absl::StatusOr<Value> join(Machine& machine, const Value& left, const Value& right) {
  if (left.is(Kind::kText)) {
    const bool is_safe = left.is_safe() || right.is_safe();  // then Markup escapes the other one
    const std::string escaped_left = is_safe && !left.is_safe() ? html_escaped(left.text()) : std::string();
    const std::string escaped_right = is_safe && !right.is_safe() ? html_escaped(right.text()) : std::string();
    const std::string& first = is_safe && !left.is_safe() ? escaped_left : left.text();
    const std::string& second = is_safe && !right.is_safe() ? escaped_right : right.text();
    BASCULE_TRY(machine.charge_bytes(first.size() + second.size()));
    return Value::of(first + second, is_safe);
  }
  BASCULE_TRY(machine.charge(left.items().size() + right.items().size()));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace

absl::StatusOr<Value> compute(Machine& machine, Operator operation, const Value& left, const Value& right) {
  const auto first = left.index(), second = right.index();
  if (first && second) return compute_integers(operation, *first, *second);
  if (left.is_number() && right.is_number()) return compute_floats(operation, left.number(), right.number());
  const auto repeats = [](const Value& value) { return value.is(Kind::kText) || value.is_sequence(); };
  if (operation == Operator::kAdd && left.kind() == right.kind() && repeats(left)) return join(machine, left, right);
  if (operation == Operator::kMultiply && repeats(left) && second) return repeat(machine, left, *second);
  if (operation == Operator::kMultiply && repeats(right) && first) return repeat(machine, right, *first);
  if (operation == Operator::kModulo && left.is(Kind::kText)) {
    if (left.is_safe()) return unimplemented("formatting a text that was marked safe is not supported");
    return format_percent(machine, left.text(), right);
  }
  return unsupported(operation, left, right);
}

absl::StatusOr<Value> negative(const Value& value) {
  if (const auto index = value.index()) {
    if (*index == INT64_MIN) return too_large(Operator::kSubtract);
    return Value::of(-*index);
  }
  if (value.is(Kind::kBigInteger)) return too_large(Operator::kSubtract);
  if (value.is(Kind::kFloat)) return Value::of(-value.number());
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  return invalid_argument("'-' is not supported before ", value.type());
}

absl::StatusOr<Value> positive(const Value& value) {
  if (const auto index = value.index()) return Value::of(*index);
  if (value.is(Kind::kFloat)) return value;
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  return invalid_argument("'+' is not supported before ", value.type());
}

}  // namespace bascule::ref::jinja
