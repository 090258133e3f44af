// Attributes, subscripts and slices.
#include <algorithm>

#include <bascule/trainer_ref/chat/compare.h>
#include <bascule/trainer_ref/chat/iterate.h>
#include <bascule/trainer_ref/chat/loop.h>
#include <bascule/trainer_ref/chat/machine.h>
#include <bascule/trainer_ref/chat/methods.h>
#include <bascule/trainer_ref/chat/operators.h>
#include <bascule/trainer_ref/chat/texts.h>
#include <bascule/transport/status.h>

namespace bascule::ref::jinja {
namespace {

// `obj[argument]`, or nullopt if Python raises TypeError or LookupError.
absl::StatusOr<std::optional<Value>> item(Machine& machine, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) {
    if (!check_hashable(machine, key).ok()) return std::nullopt;
    BASCULE_ASSIGN(const Value* found, value.dict()->find(machine, key));
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  auto index = key.index();
  if (!index || !(value.is(Kind::kText) || value.is_sequence() || value.is(Kind::kRange))) return std::nullopt;
  if (value.is(Kind::kText)) BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_ASSIGN(const std::int64_t length, length_of(value));
  if (*index < 0) *index += length;
  if (*index < 0 || *index >= length) return std::nullopt;
  if (value.is_sequence()) return value.items()[static_cast<std::size_t>(*index)];
  if (value.is(Kind::kRange)) return Value::of(value.range().at(*index));
  const auto offsets = code_point_offsets(value.text());
  const auto i = static_cast<std::size_t>(*index);
  return Value::of(value.text().substr(offsets[i], offsets[i + 1] - offsets[i]), value.is_safe());
}

// An attribute or method of Python's type, or nullopt if it has none of this name.
absl::StatusOr<std::optional<Value>> attribute_of_type(const Value& value, std::string_view name) {
  if (value.is(Kind::kNamespace)) {
    const Value* found = value.space()->attributes.find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (value.is(Kind::kLoop)) {
    BASCULE_ASSIGN(std::optional<Value> found, loop_attribute(*value.loop(), name));
    if (found) return found;
  }
  if (value.is(Kind::kRange)) {
    if (name == "start") return Value::of(value.range().start);
    if (name == "stop") return Value::of(value.range().stop);
    if (name == "step") return Value::of(value.range().step);
  }
  if (value.is(Kind::kMacro) && name == "name") return macro_name(value);
  if (const Method* method = find_method(value, name)) {
    return Value::of(std::make_shared<const MethodCall>(MethodCall{value, method}));
  }
  if (is_hidden(value, name)) return Value::undefined(cat("access to '", name, "' of ", value.type(), " is unsafe"));
  if (is_unknown_attribute(value, name)) {
    return unimplemented("'", name, "' of ", value.type(), " is not supported");
  }
  return std::nullopt;
}

Value missing(const Value& value, std::string_view key) {
  return Value::undefined(cat("'", value.type(), "' has no attribute or item ", key));
}

}  // namespace

absl::StatusOr<Value> attribute(Machine& machine, const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) {
    if (name.starts_with("__") && name.ends_with("__")) return missing(value, name);
    return value.undefined_error();
  }
  BASCULE_ASSIGN(const std::optional<Value> found, attribute_of_type(value, name));
  if (found) return *found;
  BASCULE_ASSIGN(const std::optional<Value> in, item(machine, value, Value::of(name)));
  return in ? *in : missing(value, cat("'", name, "'"));
}

absl::StatusOr<Value> subscript(Machine& machine, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  BASCULE_ASSIGN(const std::optional<Value> in, item(machine, value, key));
  if (in) return *in;
  if (!key.is(Kind::kText)) return missing(value, cat("of a key that is ", key.type()));
  BASCULE_ASSIGN(const std::optional<Value> found, attribute_of_type(value, key.text()));
  return found ? *found : missing(value, cat("'", key.text(), "'"));
}

absl::StatusOr<Value> slice(Machine& machine, const Value& value, const Value& start, const Value& stop,
                            const Value& step) {
  if (value.is(Kind::kUndefined)) return value.undefined_error();
  if (!value.is(Kind::kText) && !value.is_sequence() && !value.is(Kind::kRange)) {
    return invalid_argument("'", value.type(), "' cannot be sliced");
  }
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is(Kind::kNone) && !bound->index()) {
      return invalid_argument("a slice has integers or none, found ", bound->type());
    }
  }
  const std::int64_t stride = step.index().value_or(1);
  if (stride == 0) return invalid_argument("the step of a slice cannot be 0");
  if (value.is(Kind::kText)) BASCULE_TRY(machine.charge_bytes(value.text().size()));
  BASCULE_ASSIGN(const std::int64_t length, length_of(value));
  const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
  const auto bounded = [&](const Value& bound, std::int64_t otherwise) {
    auto index = bound.index();
    if (!index) return otherwise;
    if (*index < 0) *index = std::max(*index + length, low);
    return std::min(*index, high);
  };
  const Range places{bounded(start, stride > 0 ? low : high), bounded(stop, stride > 0 ? high : low), stride};
  if (value.is(Kind::kRange)) {
    const Range& range = value.range();
    std::int64_t by = 0;
    if (__builtin_mul_overflow(range.step, stride, &by)) return unimplemented("such a step is not supported");
    return Value::of(Range{range.at(places.start), range.at(places.stop), by});
  }
  const auto count = static_cast<std::size_t>(places.size());
  BASCULE_TRY(machine.charge(count));
  const auto place = [&](std::size_t i) { return static_cast<std::size_t>(places.at(static_cast<std::int64_t>(i))); };
  if (value.is_sequence()) {
    std::vector<Value> items;
    items.reserve(count);
    for (std::size_t i = 0; i < count; ++i) items.push_back(value.items()[place(i)]);
    return value.is(Kind::kTuple) ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  const auto offsets = code_point_offsets(value.text());
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text.append(value.text(), offsets[place(i)], offsets[place(i) + 1] - offsets[place(i)]);
  }
  return Value::of(std::move(text), value.is_safe());
}

}  // namespace bascule::ref::jinja
